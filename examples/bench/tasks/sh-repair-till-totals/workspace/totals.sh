#!/bin/sh
# totals.sh: takings of each till, from a table on stdin.
tab=$(printf '\t')
read header
rows=$(sort)
last= sum=0 all=0
echo "$rows" | {
	while IFS=$tab read till amount rest; do
		euros=${amount%.*}
		cents=${amount#*.}
		value=$((euros * 100 + cents))
		if [ "$till" != "$last" ]; then
			[ -z "$last" ] || echo "$last $((sum / 100)).$((sum % 100))"
			last=$till sum=0
		fi
		sum=$((sum + value))
		all=$((all + value))
	done
	echo "$last $((sum / 100)).$((sum % 100))"
	echo "total $((all / 100)).$((all % 100))"
}
