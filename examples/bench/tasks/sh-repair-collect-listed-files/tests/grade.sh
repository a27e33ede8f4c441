# Hidden test of collect.sh, on files with names that a curator would not choose.
here=$PWD
hall=$(mktemp -d)
cd "$hall" || exit 1
mkdir -p -- '-store/amber room' 'b[a-c]'
n=0
for name in 'plain.txt' ' led and trailed ' 'amber room/"quoted" vase' 'star*.txt' 'starfish.txt' 'back\nslash' '-rf' 'what?' '[x]'; do
	n=$((n + 1))
	printf 'exhibit %d: %s\n' "$n" "$name" >"./-store/$name"
done
echo secret >outside.txt
ln -s ../outside.txt ./-store/window
printf '%s\n' 'star*.txt' 'plain.txt' ' led and trailed ' '' 'amber room/"quoted" vase' 'no such vase' '../outside.txt' "$hall/outside.txt" \
	'back\nslash' '-rf' 'plain.txt' 'amber room' 'amber room/../plain.txt' 'window' '[x]' >'the list'
printf 'what?' >>'the list'
mkdir 'b[a-c]/plain.txt.d' && echo old >'b[a-c]/plain.txt'

said=$(sh "$here/collect.sh" 'the list' -store 'b[a-c]')
code=$?
should="copied star*.txt
copied plain.txt
copied  led and trailed 
copied amber room/\"quoted\" vase
missing no such vase
refused ../outside.txt
refused $hall/outside.txt
copied back\\nslash
copied -rf
missing amber room
refused amber room/../plain.txt
missing window
copied [x]
copied what?
8 copied, 6 missing"
verdict=0
[ "$said" = "$should" ] || { echo "the curator was told: $said"; verdict=1; }
[ "$code" = 1 ] || { echo "exit code $code though exhibits are missing"; verdict=1; }
found=$(cd 'b[a-c]' && find . -type f -exec cat {} + | LC_ALL=C sort)
want='exhibit 1: plain.txt
exhibit 2:  led and trailed 
exhibit 3: amber room/"quoted" vase
exhibit 4: star*.txt
exhibit 6: back\nslash
exhibit 7: -rf
exhibit 8: what?
exhibit 9: [x]'
[ "$found" = "$want" ] || { echo "hanging in the hall: $found"; verdict=1; }

echo starfish.txt >-one
said=$(sh "$here/collect.sh" -one ./-store new/hall)
[ "$?:$said" = '0:copied starfish.txt
1 copied, 0 missing' ] && [ -f new/hall/starfish.txt ] || { echo 'a list with a hyphen is not read'; verdict=1; }
sh "$here/collect.sh" nothing -store other 2>/dev/null
[ $? = 2 ] && [ ! -e other ] || { echo 'a list that is not there'; verdict=1; }
sh "$here/collect.sh" -one nowhere other 2>/dev/null
[ $? = 2 ] && [ ! -e other ] || { echo 'a folder that is not there'; verdict=1; }
[ "$verdict" = 1 ] || echo 'all exhibits of the amber room hang where the curator wants them'
exit $verdict
