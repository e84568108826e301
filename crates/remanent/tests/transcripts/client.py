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


def main():
    client = redis.Redis(port=int(sys.argv[1]), single_connection_client=True)
    for part in (strings, counters, pipelines, keyspace, server):
        part(client)


main()
