#!/bin/sh
# prune.sh KEEP: names of backups on stdin, those to delete on stdout.
complain() {
	echo "prune.sh: $1" >&2
	exit 2
}

keep=${1:-}
case $keep in
'' | *[!0-9]*) complain "KEEP must be a whole number, got '$keep'" ;;
esac

LC_ALL=C
export LC_ALL
names=$(grep -v '^$' | sort -u)
[ -n "$names" ] || exit 0
shape='^[a-z0-9][a-z0-9.-]*/[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{4}\.tar$'
strange=$(printf '%s\n' "$names" | grep -E -v "$shape" | head -n 1)
[ -z "$strange" ] || complain "not the name of a backup: $strange"

# Newest first within a host, so that the first KEEP of each are passed over.
printf '%s\n' "$names" | sort -t / -k 1,1 -k 2,2r | {
	current= seen=0
	while IFS= read -r name; do
		host=${name%%/*}
		if [ "$host" != "$current" ]; then
			current=$host seen=0
		fi
		seen=$((seen + 1))
		[ "$seen" -le "$keep" ] || printf '%s\n' "$name"
	done
} | sort -t / -k 1,1 -k 2,2
