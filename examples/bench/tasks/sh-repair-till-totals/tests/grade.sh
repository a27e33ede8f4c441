# Hidden test of totals.sh: prints what is wrong, and at the end the score.
score=1
expect() {
	if [ "$1" != "$2" ]; then
		printf 'the till table gives\n%s\nand should give\n%s\n' "$1" "$2"
		score=0
	fi
}
table() { printf '%b' "$1" | timeout 20 sh totals.sh 2>&1; }

expect "$(table 'till\tamount\nplum\t0.08\nplum\t0.09\nfig\t1.01\n')" 'fig 1.01
plum 0.17
total 1.18'
expect "$(table 'day\tamount\tclerk\ttill\nmon\t0012.10\tAda\tquince\ntue\t-13\tBo\tquince\ntue\t7.5\tBo\tmedlar')" 'medlar 7.50
quince -0.90
total 6.60'
expect "$(table 'till\tamount\nsloe\t3.50\nsloe\t-3.50\n')" 'sloe 0.00
total 0.00'
expect "$(table 'till\tnote\tamount\n* star\t\t2\nZ\tx, y\t1\na\t\t100000000.99\n')" '* star 2.00
Z 1.00
a 100000000.99
total 100000003.99'
expect "$(table 'till\tamount\n')" 'total 0.00'
for spoiled in '1.005' '+4' '1,50' '.5' '5.' '--2' '0x10' ''; do
	expect "$(table "till\\tamount\\npear\\t1.00\\npear\\t$spoiled\\n")" 'bad line 3'
done
expect "$(table 'till\tamount\npear\t1.00\tmore\n')" 'bad line 2'
expect "$(table 'till\tsum\npear\t1.00\n')" 'bad line 1'
printf 'till\tamount\npear\tx\n' | timeout 20 sh totals.sh >/dev/null 2>&1
expect "$?" 1
[ "$score" = 0 ] || echo 'the orchard market closed its books to the last cent'
echo "$score"
