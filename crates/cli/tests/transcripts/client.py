"""Runs one transcript with Python's redis client and prints every answer.

Usage: client.py PORT
"""

import sys

import redis


def show(what, function, *arguments, **options):
    try:
        answer = function(*arguments, **options)
    except redis.RedisError as error:
        answer = f"{type(error).__name__}: {error}"
    print(f"{what}: {answer!r}")


def strings(client):
    show("ping", client.ping)
    show("set", client.set, "greeting", "hello")
    show("get", client.get, "greeting")
    show("get missing", client.get, "missing")
    show("set nx", client.set, "greeting", "never", nx=True)
    show("set xx", client.set, "greeting", "again", xx=True)
    show("set get", client.set, "greeting", "third", get=True)
    show("set keepttl", client.set, "greeting", "fourth", keepttl=True)
    show("setnx", client.setnx, "fresh", "value")
    show("getset", client.getset, "fresh", "newer")
    show("getdel", client.getdel, "fresh")
    show("append", client.append, "greeting", b"\x00\xff\r\n")
    show("strlen", client.strlen, "greeting")
    show("get bytes", client.get, "greeting")
    show("type", client.type, "greeting")
    show("mset", client.mset, {"a": 1, "b": 2.5, "c": "three"})
    show("mget", client.mget, "a", "b", "c", "missing")
    show("exists", client.exists, "a", "missing", "a")
    show("delete", client.delete, "a", "missing")
    show("unlink", client.unlink, "b")


def counters(client):
    show("incr", client.incr, "counter")
    show("incrby", client.incrby, "counter", 41)
    show("decr", client.decr, "counter")
    show("decrby", client.decrby, "counter", 100)
    show("incr text", client.incr, "c")
    show("overflow", client.incrby, "counter", 2**63 - 1)
    show("overflow", client.incrby, "counter", 2**63 - 1)


def pipelines(client):
    pipeline = client.pipeline(transaction=False)
    for index in range(200):
        pipeline.set(f"key:{index}", index).incr("total").get(f"key:{index // 2}")
    show("pipeline", pipeline.execute)
    show("large", client.set, "large", b"x" * 3_000_000)
    show("large", lambda: len(client.get("large")))


def sorted_sets(client):
    show("zadd", client.zadd, "board", {"ann": 1, "bob": 2.5, "cid": -3, "dan": float("inf")})
    show("zadd nx", client.zadd, "board", {"ann": 9, "eve": 4}, nx=True)
    show("zadd xx ch", client.zadd, "board", {"ann": 9, "fay": 4}, xx=True, ch=True)
    show("zadd gt", client.zadd, "board", {"ann": 8, "bob": 3}, gt=True, ch=True)
    show("zadd lt", client.zadd, "board", {"ann": 8, "bob": 30}, lt=True, ch=True)
    show("zadd incr", client.zadd, "board", {"ann": 0.25}, incr=True)
    show("zadd incr nx", client.zadd, "board", {"ann": 0.25}, incr=True, nx=True)
    show("zadd nan", client.execute_command, "ZADD", "board", "nan", "ann")
    show("zincrby", client.zincrby, "board", -0.5, "bob")
    show("zincrby nan", client.zincrby, "board", float("-inf"), "dan")
    show("zcard", client.zcard, "board")
    show("zscore", client.zscore, "board", "ann")
    show("zscore missing", client.zscore, "board", "zoe")
    show("zmscore", client.zmscore, "board", ["ann", "zoe", "dan"])
    show("zrank", client.zrank, "board", "ann")
    show("zrevrank", client.zrevrank, "board", "ann")
    show("zrank missing", client.zrank, "board", "zoe")
    show("zcount", client.zcount, "board", "(-3", "+inf")
    show("zrange", client.zrange, "board", 0, -1)
    show("zrange desc", client.zrange, "board", 0, 1, desc=True, withscores=True)
    show("zrange by score", client.zrange, "board", "(-3", 8, byscore=True, withscores=True)
    show("zrange limit", client.zrange, "board", 9, 0, byscore=True, desc=True, offset=1, num=2)
    show("zrange raw", client.zrange, "board", 0, 2, withscores=True, score_cast_func=bytes)
    show("zrevrange", client.zrevrange, "board", 0, -1, withscores=True)
    show("zrangebyscore", client.zrangebyscore, "board", 2, 5, start=0, num=1, withscores=True)
    show("zrevrangebyscore", client.zrevrangebyscore, "board", 5, 2, withscores=True)
    show("zremrangebyrank", client.zremrangebyrank, "board", 0, 0)
    show("zremrangebyscore", client.zremrangebyscore, "board", 4, 4)
    show("zpopmin", client.zpopmin, "board")
    show("zpopmax", client.zpopmax, "board", 2)
    show("zpopmin empty", client.zpopmin, "board")
    show("exists", client.exists, "board")
    show("zadd words", client.zadd, "words", {word: 0 for word in "abcdefg"})
    show("zrangebylex", client.zrangebylex, "words", "[b", "(e", start=1, num=5)
    show("zrevrangebylex", client.zrevrangebylex, "words", "+", "[e")
    show("zrange by lex", client.zrange, "words", "(a", "[c", bylex=True)
    show("zlexcount", client.zlexcount, "words", "-", "(d")
    show("zremrangebylex", client.zremrangebylex, "words", "[c", "[e")
    show("zrem", client.zrem, "words", "a", "zz", "b")
    show("wrong type", client.get, "words")
    show("wrong type", client.zadd, "greeting", {"a": 1})
    show("type", client.type, "words")
    show("set", client.set, "words", "text")
    show("delete", client.delete, "words")


def long_sorted_set(client):
    pipeline = client.pipeline(transaction=False)
    for index in range(700):
        pipeline.zadd("long", {f"member:{index}": index * 7 % 700 / 4}).zrank("long", "member:0")
    show("pipeline", pipeline.execute)
    show("zscan_iter", lambda: sorted(set(client.zscan_iter("long"))))
    show("zscan_iter", lambda: sorted(set(client.zscan_iter("long", match="*:1?", count=13))))
    show("zscan missing", client.zscan, "missing")
    show("zrange", client.zrange, "long", 298, 302, withscores=True)
    show("zrank", lambda: [client.zrank("long", f"member:{index}") for index in range(0, 700, 99)])
    show("zcount", client.zcount, "long", 25, "(75")
    show("zremrangebyrank", client.zremrangebyrank, "long", 10, -11)
    show("left", client.zrange, "long", 0, -1, withscores=True)
    show("scan type", lambda: sorted(client.scan_iter(_type="zset")))
    show("unlink", client.unlink, "long")


def keyspace(client):
    show("dbsize", client.dbsize)
    show("keys", lambda: sorted(client.keys("key:1?")))
    show("scan_iter", lambda: sorted(client.scan_iter(match="key:*", count=7)))
    show("scan type", lambda: len(set(client.scan_iter(_type="string"))))
    show("flushdb", client.flushdb)
    show("flushall", client.flushall, asynchronous=True)
    show("dbsize", client.dbsize)


def server(client):
    client.set("one", 1)
    show("keyspace", lambda: client.info("keyspace"))
    info = client.info()
    names = ["redis_version", "redis_mode", "loading", "role", "cluster_enabled", "maxmemory_policy"]
    show("info", lambda: {name: info[name] for name in names})
    show("connected", lambda: info["connected_clients"] > 0 and info["used_memory"] > 0)
    show("config", client.config_get, "appendonly")
    show("name", client.client_setname, "tester")
    show("name", client.client_getname)
    show("list", lambda: [entry["name"] for entry in client.client_list()])
    show("id", lambda: client.client_id() > 0)
    show("time", lambda: len(client.time()))
    show("wait", client.wait, 0, 10)
    show("unknown", client.execute_command, "NOSUCH", "a", "b")
    show("arity", client.execute_command, "GET")
    show("select", client.execute_command, "SELECT", "7")
    show("auth", client.execute_command, "AUTH", "secret")


# What both servers know.
COMMANDS = """append auth client command config dbsize decr decrby del discard echo exec exists flushall flushdb get
    getdel getset hello incr incrby info keys mget mset multi ping quit reset scan select set setnx shutdown strlen time
    type unlink wait zadd zcard zcount zincrby zlexcount zmscore zpopmax zpopmin zrange zrangebylex zrangebyscore zrank
    zrem zremrangebylex zremrangebyrank zremrangebyscore zrevrange zrevrangebylex zrevrangebyscore zrevrank zscan
    zscore client|getname client|help client|id client|info client|list client|no-evict client|reply client|setname
    command|count command|docs command|getkeys command|getkeysandflags command|help command|info command|list
    config|get config|help config|resetstat config|set""".split()


def commands(client):
    def listed(*arguments):
        names = client.execute_command("COMMAND LIST", *arguments)
        return sorted({name.decode() for name in names} & set(COMMANDS))

    show("list", listed)
    for category in ("read", "write", "string", "sortedset", "keyspace", "connection", "admin", "dangerous",
                     "transaction", "blocking", "pubsub", "fast", "slow"):
        show(category, listed, "FILTERBY", "ACLCAT", category)
    show("pattern", listed, "FILTERBY", "PATTERN", "*get*")
    show("module", listed, "FILTERBY", "MODULE", "nosuch")


def statistics(client):
    client.flushall()
    client.execute_command("CONFIG RESETSTAT")
    for arguments in (["SET", "a", "b"], ["SET", "a"], ["GET", "a"], ["INCR", "a"], ["GET", "a"], ["NOSUCH"],
                      ["SETNX", "a"], ["ZADD", "a", "1", "m"], ["CLIENT", "GETNAME"], ["CLIENT", "NOSUCH"]):
        try:
            client.execute_command(*arguments)
        except redis.RedisError:
            pass
    stats = client.info("commandstats")
    for name in ("set", "get", "incr", "setnx", "zadd", "client|getname", "nosuch"):
        stat = stats.get(f"cmdstat_{name}")
        counts = stat and {key: stat[key] for key in ("calls", "rejected_calls", "failed_calls")}
        show(name, lambda: counts)
    show("fields", lambda: list(stats["cmdstat_get"]))
    show("errors", client.info, "errorstats")
    show("cpu", lambda: sorted(client.info("cpu")))
    show("cpu", lambda: all(value >= 0 for value in client.info("cpu").values()))
    sections = lambda *names: [line for line in client.execute_command("INFO", *names).keys()]
    show("default", lambda: "cmdstat_get" in sections() or "errorstat_ERR" in sections())
    show("all", lambda: "cmdstat_get" in sections("all") and "errorstat_ERR" in sections("everything"))
    own = client.client_info()
    names = ["flags", "db", "multi", "qbuf", "events", "cmd", "user"]
    show("client", lambda: {name: own[name] for name in names})
    show("client", lambda: int(own["fd"]) > 2 and int(own["qbuf-free"]) > 0 and int(own["tot-mem"]) > 0)


def main():
    client = redis.Redis(port=int(sys.argv[1]), single_connection_client=True)
    for part in (strings, counters, pipelines, sorted_sets, long_sorted_set, keyspace, server, commands, statistics):
        part(client)


main()
