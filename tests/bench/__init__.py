"""How fast it is, as ratios: each row measures a bare floor and the product side by side, in one run (`make bench`)."""
