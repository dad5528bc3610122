#!/bin/bash
# sbatch --wait ends as the job does.
printf '#!/bin/bash\nexit 3\n' > job.sh
sbatch --wait job.sh
[ $? -eq 3 ]
