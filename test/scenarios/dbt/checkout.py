"""Checks a dataset out for dbt, into lake.sqlite or the file that SHOP_LAKE names, and prints its data folder.

    python checkout.py REPOSITORY            the default branch
    python checkout.py REPOSITORY BRANCH     another branch, made afresh of the default one

What the file holds and no version has is thrown away, such as what a failed run left.
"""

import os
import sys

import duckdb

repository, branch = sys.argv[1], (sys.argv[2:] or [None])[0]
fdl = duckdb.connect(config={"allow_unsigned_extensions": True})
fdl.execute("LOAD fdl")
if branch:
    for (old,) in fdl.execute("SELECT ref FROM fdl_refs(?) WHERE kind = 'branch' AND name = ? AND NOT is_default", [repository, branch]).fetchall():
        fdl.execute("CALL fdl_delete_ref(?, ref := ?)", [repository, old])
    fdl.execute("CALL fdl_branch(?, name := ?)", [repository, branch])
checkout = "SELECT data_path FROM fdl_checkout(?, ref := ?, alias := 'lake', path := ?, attach := false, force := true)"
print(*fdl.execute(checkout, [repository, branch, os.environ.get("SHOP_LAKE", "lake.sqlite")]).fetchone())
