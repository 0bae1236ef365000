#!/bin/sh
# Makes the secrets of docker-compose.yml with random values: secrets/ (or $1), mode 0700. Changes none that exist.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-secrets}
umask 077
mkdir -p "$folder"
random() { LC_ALL=C tr -dc 'A-Za-z0-9' < /dev/urandom | head -c "$1"; }
# 32 bytes in URL-safe base64: a Fernet key
fernet() { head -c 32 /dev/urandom | base64 | tr '+/' '-_' | tr -d '\n'; }
write() {
    if [ -e "$folder/$1" ]; then
        echo "kept   $folder/$1"
    else
        printf '%s\n' "$2" > "$folder/$1"
        # Compose mounts the file as it is, and the containers run as users of their own.
        chmod 644 "$folder/$1"
        echo "made   $folder/$1"
    fi
}
write secret_key "$(random 64)"
write encryption_key "$(fernet)"
write postgres_password "$(random 40)"
write valkey_password "$(random 40)"
owner=$(cat "$folder/postgres_password")
broker=$(cat "$folder/valkey_password")
write database_owner_url "postgres://kvaudit_owner:$owner@postgres:5432/kvaudit"
write database_url "postgres://kvaudit_app:$(random 40)@postgres:5432/kvaudit"
write broker_url "redis://:$broker@valkey:6379/0"
write valkey_conf "bind * -::*
port 6379
dir /data
requirepass $broker
appendonly yes
appendfsync everysec
save \"\"
maxmemory-policy noeviction"
echo "The folder is readable by you alone (mode 700). Keep a copy of encryption_key apart from the database's backups."
