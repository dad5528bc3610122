#$ -cwd
echo hi
