# Hidden test of next.sh: the reward goes into a file.
table=$(mktemp)
cat "$CLEANRUN_TESTS/harbour.txt" >"$table"
missed=0
ask() { # ask WANT ARGUMENTS
	want=$1
	shift
	said=$(timeout 20 sh next.sh "$table" "$@" 2>&1)
	said="$said/$?"
	[ "$said" = "$want" ] && return
	missed=$((missed + 1))
	echo "asked for $*: a passenger would read $said"
}
ask '05:25 A Mussel Bay
05:25 K10 The Narrows
05:25 K7 Mussel Bay
05:40 K7 Mussel Bay
08:08 K10 The Narrows
09:09 K10 The Narrows
22:55 K7 Mussel Bay
05:10 K7 Mussel Bay +1/0' 'Gull Rock' 05:11 8
ask '08:08 K10 The Narrows/0' 'Gull Rock' 08:08
ask '09:09 K10 The Narrows/0' 'Gull Rock' 08:09 1
ask '00:00 K7 Gull Rock
00:00 K7 Gull Rock +1
00:00 K7 Gull Rock +2/0' 'Heron Steps' 00:00 3
ask '00:00 K7 Gull Rock +1/0' 'Heron Steps' 23:59
ask 'no such stop/1' 'Heron' 10:00
ask 'no such stop/1' '# winter only' 10:00
ask '/2' 'Heron Steps' 24:00
ask '/2' 'Heron Steps' 9:00
ask '/2' 'Heron Steps' 09:60 2
ask '/2' 'Heron Steps' 09:00 0
ask '/2' 'Heron Steps' 09:00 100
if [ "$missed" = 0 ]; then
	echo 'no passenger of the winter ferries was left standing on the quay'
	echo 1 >"$CLEANRUN_REWARD_DIR/reward.txt"
else
	echo 0 >"$CLEANRUN_REWARD_DIR/reward.txt"
fi
