set -eu
python compare.py
