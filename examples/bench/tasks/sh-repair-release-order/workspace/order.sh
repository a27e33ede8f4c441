#!/bin/sh
# order.sh: names of releases on stdin, sorted.
sort -t . -k 1,1 -k 2,2 -k 3,3 -u
