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
# The pair that seals generated text: the last 32 bytes of either DER form are the key itself (RFC 8410).
if [ ! -e "$folder/seal_private_key" ] || [ ! -e "$folder/seal_public_key" ]; then
    command -v openssl >/dev/null 2>&1 || { echo "kvaudit: openssl is needed to make a key pair: install it" >&2; exit 1; }
    pair=$(mktemp "$folder/pair.XXXXXX")
    openssl genpkey -algorithm X25519 -outform DER -out "$pair"
    private=$(tail -c 32 "$pair" | base64 | tr '+/' '-_')
    public=$(openssl pkey -inform DER -in "$pair" -pubout -outform DER | tail -c 32 | base64 | tr '+/' '-_')
    rm -f "$pair" "$folder/seal_private_key" "$folder/seal_public_key"
    write seal_private_key "$private"
    write seal_public_key "$public"
fi
write postgres_password "$(random 40)"
write valkey_password "$(random 40)"
owner=$(cat "$folder/postgres_password")
broker=$(cat "$folder/valkey_password")
write database_owner_url "postgres://kvaudit_owner:$owner@postgres:5432/kvaudit"
write database_url "postgres://kvaudit_app:$(random 40)@postgres:5432/kvaudit"
write database_retention_url "postgres://kvaudit_retention:$(random 40)@postgres:5432/kvaudit"
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
