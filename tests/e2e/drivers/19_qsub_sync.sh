#!/bin/bash
# qsub -sync y ends as the job does.
printf '#!/bin/sh\nexit 5\n' > job.sh
qsub -sync y -cwd job.sh | tee said
[ "${PIPESTATUS[0]}" -eq 5 ] && grep -q 'exited with exit code 5' said
