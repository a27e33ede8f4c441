#!/bin/sh
# collect.sh LIST FROM TO: copies the listed files.
list=$1 from=$2 to=$3
copied=0 missing=0
mkdir -p $to
for path in `cat $list`; do
	if [ -f $from/$path ]; then
		mkdir -p $to/`dirname $path`
		cp $from/$path $to/$path
		echo copied $path
		copied=$((copied + 1))
	else
		echo missing $path
		missing=$((missing + 1))
	fi
done
echo $copied copied, $missing missing
