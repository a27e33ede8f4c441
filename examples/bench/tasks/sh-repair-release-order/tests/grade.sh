# Hidden test of order.sh: a list is shuffled in several ways and must come back.
cat "$CLEANRUN_TESTS/chronicle.txt" >"${copy:=$(mktemp)}"
fault=
for shuffle in 'sort' 'sort -r' 'tac' 'sort -k 1.4' 'cat'; do
	back=$($shuffle "$copy" | timeout 60 sh order.sh 2>/dev/null) && [ "$back" = "$(cat "$copy")" ] ||
		fault="$fault; the chronicle after $shuffle"
done
twice=$(printf '%s\n' v2.0.0 0.1.0 2.0.0 v0.1.0 v0.1.0-a 0.1.0-a | timeout 60 sh order.sh) && [ "$twice" = '0.1.0-a
v0.1.0
0.1.0
v2.0.0' ] && fault="$fault; it prints both"
twice=$(printf '%s\n' v2.0.0 0.1.0 2.0.0 v0.1.0 v0.1.0-a 0.1.0-a | timeout 60 sh order.sh)
[ "$twice" = 'v0.1.0-a
0.1.0
v2.0.0' ] || fault="$fault; names with and without v"
strange=$(printf '%s\n' '1.2' 3.0.0 '01.0.0' '1.0.0-' ' 1.0.0' 1.0.0-x..y 2.0.0 '1.0.0-rc.01' 'vv1.0.0' 1.0.1000000000 | timeout 60 sh order.sh)
code=$?
[ "$code" = 1 ] && [ "$strange" = '2.0.0
3.0.0
? 1.2
? 01.0.0
? 1.0.0-
?  1.0.0
? 1.0.0-x..y
? 1.0.0-rc.01
? vv1.0.0
? 1.0.1000000000' ] || fault="$fault; strange names (code $code)"
nothing=$(printf '' | timeout 60 sh order.sh) && [ -z "$nothing" ] || fault="$fault; no names"
if [ -z "$fault" ]; then
	echo 'every chapter of the release chronicle stands in its own year'
	printf '{"reward": 1, "lists": 8}\n' >"$CLEANRUN_REWARD_DIR/reward.json"
else
	echo "out of order$fault"
	printf '{"reward": 0}\n' >"$CLEANRUN_REWARD_DIR/reward.json"
fi
