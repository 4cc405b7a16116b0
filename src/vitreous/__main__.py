"""`python -m vitreous` is the `vitreous` command."""

from vitreous.cli import main

main()
