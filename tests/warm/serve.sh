#!/bin/sh
# Starts a server of a program for a while, or ends it; ctest does, before the first test that calls the program and after the last one.
#
#   serve.sh begin SERVER_LIBRARY SOCKET PROGRAM
#   serve.sh end SOCKET
set -eu
if [ "$1" = end ]; then
  if [ -e "$2.process" ]; then
    kill "$(cat "$2.process")" 2> /dev/null || true  # it ends by itself where it has waited for too long
    rm -f "$2" "$2.process"
  fi
  exit 0
fi
if [ ${#3} -gt 107 ]; then  # what a socket's address can hold; the client then starts the program itself
  echo "no server: $3 is too long for a socket"
  exit 0
fi
rm -f "$3.ready"
mkfifo "$3.ready"
setsid env "LD_PRELOAD=$2" LD_BIND_NOW=1 "TRAINRUN_WARM_SOCKET=$3" TRAINRUN_WARM_IDLE_S=1200 "$4" < /dev/null > "$3.ready" 2> "$3.errors" &
echo $! > "$3.process"
read -r said < "$3.ready" || said="nothing"
rm -f "$3.ready"
if [ "$said" != ready ]; then
  echo "$4 did not start as a server; it said: $said"
  cat "$3.errors"
  exit 1
fi
