# Hidden test of prune.sh: each check names what a wrong script would do.
wrong=0
check() { # check WHAT WANT KEEP, names on stdin
	told=$(timeout 10 sh prune.sh "$3" 2>/dev/null)
	if [ "$told" != "$2" ]; then
		echo "prune: $1"
		wrong=1
	fi
}

printf '%s\n' quay/2023-11-05T0115.tar quay/2023-11-06T0115.tar mole/2023-11-05T0230.tar mole/2023-11-07T0230.tar mole/2023-11-06T0230.tar |
	check 'counts the newest of all hosts together' 'mole/2023-11-05T0230.tar
mole/2023-11-06T0230.tar
quay/2023-11-05T0115.tar' 1

printf '%s\n' pier-9/2023-12-31T2359.tar pier-9/2024-01-01T0001.tar pier-10/2024-01-01T0000.tar pier-9/2022-02-03T0405.tar |
	check 'mixes up hosts with a common prefix' 'pier-9/2022-02-03T0405.tar' 2

printf '%s\n' dock.a/2024-05-05T0505.tar dock.a/2024-05-05T0505.tar dock.a/2024-05-04T0505.tar |
	check 'counts one backup twice' 'dock.a/2024-05-04T0505.tar' 1

printf '%s\n' ebb/2024-06-01T1000.tar '' ebb/2024-06-02T1000.tar | check 'keeps something though KEEP is 0' 'ebb/2024-06-01T1000.tar
ebb/2024-06-02T1000.tar' 0

printf '' | check 'prints a line for no backups' '' 3
printf '%s\n' flow/2024-07-01T1000.tar | check 'deletes the only one' '' 007

for strange in '../etc/2024-01-01T0000.tar' 'Flow/2024-07-02T1000.tar' 'flow/2024-7-2T1000.tar' 'flow/2024-07-02T1000.tar.gz' '-rf/2024-07-02T1000.tar' 'a b/2024-07-02T1000.tar'; do
	out=$(printf '%s\n' kelp/2024-01-02T0000.tar kelp/2024-01-03T0000.tar "$strange" | timeout 10 sh prune.sh 1 2>/dev/null)
	code=$?
	[ "$code:$out" = 2: ] || { echo "prune: takes the line $strange"; wrong=1; }
done
for keep in '' two -1 1.5; do
	out=$(printf '%s\n' kelp/2024-01-02T0000.tar | timeout 10 sh prune.sh "$keep" 2>/dev/null)
	code=$?
	[ "$code:$out" = 2: ] || { echo "prune: takes KEEP '$keep'"; wrong=1; }
done
[ "$wrong" = 1 ] || echo 'every harbour host keeps its newest backups and loses the others'
exit "$wrong"
