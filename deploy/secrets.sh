#!/bin/sh
# Make the secrets of a stack in folder $1 (deploy/secrets): a random password for each user of the server and for
# Grafana. What exists is left alone. EVALQ_SERVER is where the other containers find the server.
# The folder is closed to others; its files are not, because they are mounted into containers that run as other users.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/secrets}
server=${EVALQ_SERVER:-redis:6379}
[ -e "$folder/users.acl" ] && exit 0
mkdir -p "$folder"
chmod 0700 "$folder"
umask 0022

secret() { od -An -tx1 -N24 /dev/urandom | tr -d ' \n'; }

users=$(cat "$here/redis/users.acl")
for role in producer worker exporter admin; do
  password=$(secret)
  hash=$(printf %s "$password" | sha256sum | cut -d' ' -f1)
  users=$(printf '%s\n' "$users" | sed "s/>change-me-$role /#$hash /")
  echo "broker: redis://evalq-$role:$password@$server/0" > "$folder/$role.yaml"
  if [ "$role" = exporter ]; then printf %s "$password" > "$folder/exporter-password"; fi
done
secret > "$folder/grafana-password"
printf '%s\n' "$users" > "$folder/users.acl"
