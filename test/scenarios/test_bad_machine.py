"""Full disks and folders that cannot be written to: each a clear message, nothing half done, and the same call works once there is room."""

import pytest

from repository import namespaced

SMALL = "mkdir -p small && mount -t tmpfs -o size=24m none small"
READ_ONLY = "mount --bind repo repo && mount -o remount,bind,ro repo"

# What a call may say when there is no room.
FULL = """
disk = Disk('small')
def no_room(sql):
    message = error_of(c, sql)
    check_message(message, sql, 'FDL-STORE', '', 'free some space')
    assert 'no space' in message.lower(), message
    assert not c.execute("SELECT database_name FROM duckdb_databases() WHERE starts_with(database_name, '__fdl_')").fetchall()
    return message
"""


def test_init_on_a_full_disk():
    namespaced(SMALL, FULL + """
disk.fill()
no_room("CALL fdl_init('small/repo')")
disk.free()
assert rows(c, "CALL fdl_init('small/repo')")[0]['head'] == 'refs/heads/main'
assert rows(c, "FROM fdl_refs('small/repo')") == []
assert not [path for path in tree('small/repo') if path not in ('fdl.json', 'HEAD', 'refs.json', '.fdl-lock', 'refs')], tree('small/repo')
""")


@pytest.mark.parametrize("left", [0, 200_000, 900_000])
def test_checkout_on_a_full_disk(repo, left):
    namespaced(SMALL, FULL + f"""
before = tree('repo')
disk.fill({left})
no_room("CALL fdl_checkout('repo', alias := 'lake', path := 'small/lake.sqlite')")
assert not os.path.exists('small/lake.sqlite')
disk.free()
lake_of(c, path='small/lake.sqlite')
assert c.execute('SELECT count(*) FROM lake.t').fetchone() == (7,)
assert tree('repo') == before
""")


@pytest.mark.parametrize("left", [0, 200_000, 900_000])
def test_commit_on_a_full_disk(repo, left):
    namespaced(SMALL, FULL + f"""
lake_of(c, path='small/lake.sqlite')
c.execute("INSERT INTO lake.t VALUES (100, 'mine')")
c.execute("CHECKPOINT")
disk.fill({left})
no_room("CALL fdl_commit('lake', message := 'three')")
disk.free()
status = rows(c, "FROM fdl_status('lake')")[0]
assert (status['ahead'], status['uncommitted']) == (0, True)
assert rows(c, "CALL fdl_commit('lake', message := 'three')")[0]['rows'] == 9
assert c.execute('SELECT count(*) FROM lake.t').fetchone() == (8,)
assert rows(c, "CALL fdl_push('lake')")[0]['outcome'] == 'pushed'
""")


@pytest.mark.parametrize("left", [0, 8192, 200_000, 900_000])
def test_push_on_a_full_disk(repo, left):
    namespaced(SMALL + " && cp -r repo small/repo && rm -r repo && ln -s small/repo repo", FULL + f"""
c.execute("CALL fdl_checkout('small/repo', alias := 'lake')")
c.execute("INSERT INTO lake.t VALUES (100, 'mine')")
c.execute("CALL fdl_commit('lake', message := 'three')")
refs = rows(c, "FROM fdl_refs('small/repo')")
disk.fill({left})
no_room("CALL fdl_push('lake', tag := 'v3')")
assert rows(c, "FROM fdl_refs('small/repo')") == refs
assert [row['message'] for row in rows(c, "FROM fdl_log('small/repo')")] == ['two', 'one']
c.execute("CALL fdl_attach('small/repo', alias := 'reader')")
assert c.execute('SELECT count(*) FROM reader.t').fetchone() == (7,)
disk.free()
pushed = rows(c, "CALL fdl_push('lake', tag := 'v3')")[0]
assert (pushed['outcome'], pushed['versions']) == ('pushed', 1)
assert [row['message'] for row in rows(c, "FROM fdl_log('small/repo', ref := 'v3')")] == ['three', 'two', 'one']
assert not [path for path in tree('small/repo') if 'tmp' in path or '.part' in path or '#' in path]
""")


@pytest.mark.parametrize("call", ["fdl_tag('small/repo', name := 'x')", "fdl_branch('small/repo', name := 'x')"])
def test_refs_on_a_full_disk(repo, call):
    namespaced(SMALL + " && cp -r repo small/repo", FULL + f"""
disk.fill()
no_room("CALL {call}")
disk.free()
assert len(rows(c, "FROM fdl_refs('small/repo')")) == 3
c.execute("CALL {call}")
assert len(rows(c, "FROM fdl_refs('small/repo')")) == 4
""")


def test_attach_with_a_full_cache(repo):
    namespaced(SMALL, FULL + """
os.environ['FDL_CACHE_DIR'] = os.path.abspath('small/cache')
disk.fill()
no_room("CALL fdl_attach('repo', alias := 'x', cache := 'always')")
disk.free()
c.execute("CALL fdl_attach('repo', alias := 'x', cache := 'always')")
assert c.execute('SELECT count(*) FROM x.t').fetchone() == (7,)
assert len(list(Path('small/cache').glob('*/*.duckdb'))) == 1 and not list(Path('small/cache').glob('*/.part-*'))
""")


def test_status_with_a_full_temporary_folder(repo):
    """The comparison needs room for a catalog; it must not be found to be 'nothing has changed'."""
    namespaced(SMALL, FULL + """
lake_of(c)
c.execute("INSERT INTO lake.t VALUES (100, 'mine')")
os.environ['TMPDIR'] = 'small'
disk.fill()
no_room("CALL fdl_status('lake')")
disk.free()
assert rows(c, "FROM fdl_status('lake')")[0]['uncommitted'] is True
assert not [path for path in tree('small')]
""")


# ---------------------------------------------------------------- no permission

CANNOT = """
def cannot(sql):
    check_message(error_of(c, sql), sql, 'FDL-PERMISSION')
    assert not c.execute("SELECT database_name FROM duckdb_databases() WHERE starts_with(database_name, '__fdl_')").fetchall()
"""


def test_a_repository_that_can_only_be_read(repo):
    namespaced("mkdir -p work && " + READ_ONLY, CANNOT + """
before = tree('repo')
assert len(rows(c, "FROM fdl_log('repo')")) == 2
for call in ("fdl_refs('repo')", "fdl_url('repo')", "fdl_tables('repo')", "fdl_files('repo')"):
    assert rows(c, 'FROM ' + call)
for cache in ('auto', 'always', 'never'):
    c.execute(f"CALL fdl_attach('repo', alias := 'reader', cache := '{cache}')")
    assert c.execute('SELECT count(*) FROM reader.t').fetchone() == (7,)
for call in ("fdl_tag('repo', name := 'x')", "fdl_branch('repo', name := 'x')", "fdl_delete_ref('repo', ref := 'refs/tags/v1')"):
    cannot('CALL ' + call)
# A working copy elsewhere can be made and read; what it holds cannot be pushed.
lake_of(c)
assert c.execute('SELECT count(*) FROM lake.t').fetchone() == (7,)
assert rows(c, "FROM fdl_status('lake')")[0]['uncommitted'] is False
c.execute("COMMENT ON TABLE lake.t IS 'mine'")
assert rows(c, "CALL fdl_commit('lake', message := 'a comment')")[0]['committed'] is True
cannot("CALL fdl_push('lake')")
assert rows(c, "FROM fdl_status('lake')")[0]['ahead'] == 1
assert tree('repo') == before
""")


def test_a_second_init_of_a_repository_that_can_only_be_read(repo):
    """It changes nothing, so it needs no permission."""
    namespaced(READ_ONLY, """
message = None
try:
    init = rows(c, "CALL fdl_init('repo')")[0]
    assert init['created'] is False and init['id'] == '6f1f5f3e-64c8-4b2e-9d0e-0d8a9c6c1a11'
except duckdb.Error as error:
    check_message(str(error), 'fdl_init', 'FDL-PERMISSION')
""")


def test_folders_that_can_only_be_read(repo, bare):
    (bare / "closed").mkdir()
    namespaced("mount --bind closed closed && mount -o remount,bind,ro closed", CANNOT + """
cannot("CALL fdl_init('closed')")
cannot("CALL fdl_init('closed/below')")
cannot("CALL fdl_checkout('repo', alias := 'x', path := 'closed/x.sqlite')")
os.environ['FDL_CACHE_DIR'] = os.path.abspath('closed/cache')
cannot("CALL fdl_attach('repo', alias := 'x', cache := 'always')")
""")


def test_a_working_copy_that_can_only_be_read(repo, bare):
    (bare / "mine").mkdir()
    namespaced("true", "lake_of(c, path='mine/lake.sqlite')\nc.execute(\"INSERT INTO lake.t VALUES (100, 'mine')\")")
    namespaced("mount --bind mine mine && mount -o remount,bind,ro mine", CANNOT + """
before = tree('mine')
cannot("CALL fdl_commit('mine/lake.sqlite', message := 'x')")
cannot("CALL fdl_push('mine/lake.sqlite', message := 'x')")
cannot("CALL fdl_checkout('repo', alias := 'x', path := 'mine/lake.sqlite', force := true)")
assert tree('mine') == before
""")


def test_files_of_another_user(repo, bare):
    """Without the rights of root, the folder's own permissions count: no entry, no reading."""
    drop = "setpriv --bounding-set=-dac_override,-dac_read_search --inh-caps=-all true || exit 0\n"
    done = namespaced(drop + "chmod 000 repo/versions && chmod 500 repo/refs/tags && mkdir closed && chmod 000 closed\n"
                      "set -- setpriv --bounding-set=-dac_override,-dac_read_search --inh-caps=-all \"$0\" \"$1\"; exec \"$@\"", CANNOT + """
if os.access('closed', os.R_OK): sys.exit()
cannot("CALL fdl_attach('repo', alias := 'x')")
cannot("FROM fdl_log('repo')")
cannot("CALL fdl_checkout('repo', alias := 'x')")
cannot("CALL fdl_init('closed')")
cannot("CALL fdl_log('closed')")
cannot("CALL fdl_delete_ref('repo', ref := 'refs/tags/v1')")
print('tried')
""")
    if "tried" not in done.stdout:
        pytest.skip("this machine does not let a test drop its rights")
