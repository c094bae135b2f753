"""`python -m trainrun` is `trainrun`."""

from trainrun import main

main()
