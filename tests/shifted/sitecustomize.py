"""On the path of drills' processes under libfaketime, whose own `clock_nanosleep` refuses what Python asks of it."""

import select
import time

time.sleep = lambda seconds: select.select([], [], [], seconds) and None
