# Hidden test of Convert: questions of a travelling merchant; prints the score.
export GOTOOLCHAIN=local GOPROXY=off GOWORK=off GOFLAGS="-buildvcs=false -gcflags=all=-l" CGO_ENABLED=0
if [ ! -f convert.go ]; then
	echo 'the merchant has no convert.go'
	echo 0
	exit 0
fi
cart=$(mktemp -d)
if ! go build -o "$cart/units" .; then
	echo 0
	exit 0
fi
cat >"$cart/asked" <<'END'
1 LEAGUE = 3 MILE
1 MILE = 1760 YARD
3 FOOT = 1 YARD
12 INCH = 1 FOOT
1 INCH = 2.54 CM
1 BARREL = 36 GALLON
2.5 MILE in FOOT
1 CM in LEAGUE
-1 LEAGUE in CM
1000000 CM in LEAGUE
0.1 INCH in INCH
-0 FOOT in YARD
-0.000001 INCH in FOOT
0.000006 INCH in FOOT
-0.000006 INCH in FOOT
100 CM in GALLON
1 STONE in STONE
1 MILE in STONE
1e3 MILE in YARD
.5 MILE in YARD
+5 MILE in YARD
1/2 MILE in YARD
72 GALLON in BARREL
7 GALLON in BARREL
1 YARD = 36 INCH
1 YARD in CM
1 GALLON = 4 QUART
1 QUART = 2 PINT
1 GALLON = 9 PINT
1 YARD in CM
x YARD in CM
forget
1 YARD in CM
1 B = 1 A
1 B in A
2 A = 3 A
1 B in B
forget
0.1 U = 0.3 V
1 W = 3 V
1 W = 1 U
123456789012345678901234567890 U in V
END
cat >"$cart/sold" <<'END'
13200
0.000002
-482803.2
2.071237
0.1
0
0
0.000001
-0.000001
error: no way from CM to GALLON
error: no way from STONE to STONE
error: no way from MILE to STONE
error: bad number
error: bad number
error: bad number
error: bad number
2
0.194444
91.44
error: rules disagree about BARREL
error: rules disagree about BARREL
error: no way from YARD to CM
1
error: rules disagree about A
370370367037037036703703703670
END
answers=$(cat "$cart/asked" | timeout 20 "$cart/units")
if [ "$answers" = "$(cat "$cart/sold")" ]; then
	echo 'the merchant came through nine markets and gave full measure in each'
	echo 1
else
	printf '%s\n' "$answers" | grep -n -v -x -F -f "$cart/sold" | head -n 5
	echo 0
fi
