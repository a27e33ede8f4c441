#!/bin/sh
# prune.sh KEEP: names of backups on stdin, those to delete on stdout.
keep=$1
n=0
sort -r | while read name; do
	n=$((n + 1))
	if [ $n -gt $keep ]; then
		echo $name
	fi
done
