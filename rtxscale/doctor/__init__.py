"""Whether a machine is fit to be measured: facts are collected apart from the rules that judge them."""
