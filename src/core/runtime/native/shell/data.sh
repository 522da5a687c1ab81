# Jobs are processes of this user, with Ray's environment first in the path.
ray_env=$(sed -n 's/^ray_env //p' "$gpucl_home/prepared/prepare" 2>/dev/null)
python=$ray_env/bin/python
[ -x "$python" ] || { echo "the Ray environment is gone: ${ray_env:-none was created}"; exit 1; }
fill=$gpucl_home/fill.py
GPUCL_DATA=$gpucl_home/data
PATH=$ray_env/bin:$PATH
export GPUCL_DATA PATH
as_job() { "$@"; }
