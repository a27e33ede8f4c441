# Hidden test of stock.sh; the score is the share of the stocktakings that come
# out right, given only if most of them do.
store=$(mktemp -d)
right=0 all=0
stocktaking() { # stocktaking NAME CODE LINES: before on descriptor 3, after on 4
	cat <&3 >"$store/before"
	cat <&4 >"$store/after"
	all=$((all + 1))
	report=$(timeout 20 sh stock.sh "$store/before" "$store/after" 2>/dev/null)
	code=$?
	if [ "$code" = "$2" ] && [ "$report" = "$3" ]; then
		right=$((right + 1))
	else
		echo "stocktaking $1 went wrong (code $code): $report"
	fi
}
stocktaking cellar 1 '~ lantern 3 -> 4
+ whistle 1
same 1' 3<<A 4<<B
rope, 10 m: 12
lantern: 3
A
lantern: 4
rope, 10 m: 6
rope, 10 m: 6
whistle: 1
B
stocktaking attic 0 'same 2' 3<<A 4<<B
  tar barrel :  0007
oakum: 08
ghost: 0
A

oakum:5
tar barrel: 7
oakum:003
B
stocktaking loft 1 '+ *  * 9
~ a 9 -> 10
- a b 1
+ a-b 1
- zinc 10
same 0' 3<<A 4<<B
zinc: 10
a: 9
a b: 1
A
*  *: 9
a: 10
a-b: 1
zinc: 000
B
stocktaking shed 1 '~ anchor\n 999999999 -> 1999999998
same 0' 3<<'A' 4<<'B'
anchor\n: 999999999
A
anchor\n: 999999999
anchor\n : 999999999
B
stocktaking empty 0 'same 0' 3</dev/null 4</dev/null
for line in 'no number' 'sail: -1' 'sail: 1.5' 'sail: 1000000000' ': 4' 'sail: 1: 2' 'sail:'; do
	stocktaking "with the line $line" 2 '' 3<<A 4<<B
sail: 2
A
sail: 2
$line
B
done
if [ "$right" = "$all" ]; then
	echo 'the chandlery knows again what lies in its cellar, attic and loft'
	echo 1.0
elif [ "$right" -gt 9 ]; then
	echo "0.$right"
else
	echo 0
fi
