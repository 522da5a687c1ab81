"""A stand-in of an object store that speaks S3, for tests: it keeps objects in memory, and checks what real ones check.

    python3 store.py PORT-FILE [ADDRESS]    prints its port to the file, and serves until it is ended

It listens on the loopback, or on ADDRESS.

Signatures (Version 4, in headers), the time of a request, the digest of a body, checksums, and the parts of an upload are
checked as AWS documents them. `POST /-/control` sets what goes wrong, `GET /-/seen` says what it holds and what it was
asked for. It shares no code with the client.
"""

import base64
import calendar
import collections
import email.utils
import hashlib
import hmac
import json
import os
import socket
import socketserver
import sys
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape

KEYS = {"public": "key-id", "secret": "the/secret+key", "token": None}
# A request's time may differ from the store's by this many seconds.
VALID_S = 900
LEAST_PART = 5 << 20
LOCK = threading.RLock()
BUCKETS = {"bucket": {}, "own": {}}
UPLOADS = {}
# What goes wrong: see `faults`.
FAULTS = {"refuse": None, "room": None, "rate": None, "away": False, "ahead": 0, "lose": None, "checksums": True, "pause": 0}
SEEN = {"requests": collections.Counter(), "written": collections.Counter(), "bad": [], "puts": []}
PACE = {"at": 0.0}


class Refused(Exception):
    """An answer that is an error: status, code, message."""


class Thing:
    """An object."""

    def __init__(self, body, tag, meta):
        self.body, self.tag, self.meta, self.time = body, tag, meta, time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())


def signature_of(method, path, query, headers, names, digest, moment, scope):
    """The signature that a request must have."""
    pairs = sorted((urllib.parse.quote(name, safe="-_.~"), urllib.parse.quote(value, safe="-_.~")) for name, value in query)
    lines = [method, urllib.parse.quote(urllib.parse.unquote(path), safe="/-_.~"), "&".join("%s=%s" % pair for pair in pairs)]
    lines += ["%s:%s" % (name, " ".join(headers.get(name, "").split())) for name in names]
    request = "\n".join(lines + ["", ";".join(names), digest])
    key = ("AWS4" + KEYS["secret"]).encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    text = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(request.encode()).hexdigest()])
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def check(method, path, query, headers, body):
    """Refuses a request that is not signed as it has to be, or whose body is not what was signed."""
    words = headers.get("authorization", "")
    if not words.startswith("AWS4-HMAC-SHA256 "):
        raise Refused(403, "AccessDenied", "not signed at all")
    parts = dict(part.strip().partition("=")[::2] for part in words.split(" ", 1)[1].split(","))
    public, _, scope = parts["Credential"].partition("/")
    names = parts["SignedHeaders"].split(";")
    moment, digest = headers.get("x-amz-date", ""), headers.get("x-amz-content-sha256", "")
    if public != KEYS["public"]:
        raise Refused(403, "InvalidAccessKeyId", "no such key")
    if KEYS["token"] is not None and headers.get("x-amz-security-token") != KEYS["token"]:
        raise Refused(403, "InvalidToken", "the token is wrong")
    missing = [name for name in headers if (name.startswith("x-amz-") or name == "host") and name not in names]
    if missing or scope.split("/")[0] != moment[:8]:
        raise Refused(403, "AccessDenied", "not signed: %s" % missing)
    when = calendar.timegm(time.strptime(moment, "%Y%m%dT%H%M%SZ"))
    if abs(when - time.time() - FAULTS["ahead"]) > VALID_S:
        raise Refused(403, "RequestTimeTooSkewed", "the difference between the request time and the server's time is too large")
    if signature_of(method, path, query, headers, names, digest, moment, scope) != parts["Signature"]:
        raise Refused(403, "SignatureDoesNotMatch", "the signature is wrong")
    if digest != hashlib.sha256(body).hexdigest():
        raise Refused(400, "XAmzContentSHA256Mismatch", "the body has another digest")
    sum_ = headers.get("x-amz-checksum-sha256")
    if sum_ is not None and not FAULTS["checksums"]:
        raise Refused(501, "NotImplemented", "no checksums here")
    if sum_ is not None and base64.b64decode(sum_) != hashlib.sha256(body).digest():
        raise Refused(400, "BadDigest", "the checksum is wrong")


def has_room(bucket, more):
    """Refuses what does not fit."""
    if FAULTS["room"] is not None and sum(len(one.body) for one in bucket.values()) + more > FAULTS["room"]:
        raise Refused(507, "InsufficientStorage", "no room is left")


def store(name, bucket, key, thing):
    """Keeps an object."""
    SEEN["written"][key] += 1
    SEEN["puts"].append(key)
    if FAULTS["lose"] and FAULTS["lose"] in key:
        FAULTS["lose"] = None
        return
    bucket[key] = thing


def listing(bucket, query):
    """One page of a list."""
    prefix, most, after = query.get("prefix", ""), min(1000, int(query.get("max-keys", 1000))), query.get("continuation-token", "")
    encode = urllib.parse.quote_plus if query.get("encoding-type") == "url" else escape
    keys = sorted(key for key in bucket if key.startswith(prefix) and key > after)
    rows = "".join(
        "<Contents><Key>%s</Key><LastModified>%s</LastModified><ETag>&quot;%s&quot;</ETag><Size>%d</Size></Contents>"
        % (encode(key), bucket[key].time, bucket[key].tag, len(bucket[key].body))
        for key in keys[:most]
    )
    more = len(keys) > most
    rows += "<IsTruncated>%s</IsTruncated>" % ("true" if more else "false")
    if query.get("encoding-type"):
        rows += "<EncodingType>url</EncodingType>"
    if more:
        rows += "<NextContinuationToken>%s</NextContinuationToken>" % escape(keys[most - 1])
    return '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">%s</ListBucketResult>' % rows


def answer(method, path, query_text, headers, body):
    """What a request is answered with: status, headers, body."""
    query = urllib.parse.parse_qsl(query_text, keep_blank_values=True)
    check(method, path, query, headers, body)
    name, _, key = urllib.parse.unquote(path)[1:].partition("/")
    query = dict(query)
    with LOCK:
        bucket = BUCKETS.get(name)
        if bucket is None:
            raise Refused(404, "NoSuchBucket", "there is no such bucket")
        if FAULTS["refuse"] and method in ("PUT", "POST") and FAULTS["refuse"] in key:
            raise Refused(403, "AccessDenied", "you may not write here")
        meta = {name: value for name, value in headers.items() if name.startswith("x-amz-meta-")}
        if not key:
            if "uploads" in query:
                rows = "".join("<Upload><Key>%s</Key><UploadId>%s</UploadId></Upload>" % (escape(one[1]), id_) for id_, one in UPLOADS.items() if one[0] == name)
                return 200, {}, ("<ListMultipartUploadsResult>%s</ListMultipartUploadsResult>" % rows).encode()
            return 200, {}, listing(bucket, query).encode()
        if method == "PUT" and "x-amz-copy-source" in headers:
            source, _, old = urllib.parse.unquote(headers["x-amz-copy-source"]).lstrip("/").partition("/")
            if old not in BUCKETS.get(source, {}):
                raise Refused(404, "NoSuchKey", "nothing to copy")
            one = BUCKETS[source][old]
            has_room(bucket, len(one.body))
            store(name, bucket, key, Thing(one.body, one.tag, one.meta))
            return 200, {}, b"<CopyObjectResult/>"
        if method == "PUT" and "uploadId" in query:
            if query["uploadId"] not in UPLOADS:
                raise Refused(404, "NoSuchUpload", "there is no such upload")
            has_room(bucket, len(body))
            SEEN["written"]["%s#%s" % (key, query["partNumber"])] += 1
            tag = hashlib.md5(body).hexdigest()
            UPLOADS[query["uploadId"]][3][int(query["partNumber"])] = (body, tag)
            return 200, {"ETag": '"%s"' % tag}, b""
        if method == "PUT":
            has_room(bucket, len(body))
            tag = hashlib.md5(body).hexdigest()
            store(name, bucket, key, Thing(body, tag, meta))
            return 200, {"ETag": '"%s"' % tag}, b""
        if method == "POST" and "uploads" in query:
            upload = os.urandom(8).hex()
            UPLOADS[upload] = (name, key, meta, {})
            return 200, {}, ("<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>" % upload).encode()
        if method == "POST" and "uploadId" in query:
            if query["uploadId"] not in UPLOADS:
                raise Refused(404, "NoSuchUpload", "there is no such upload")
            parts = UPLOADS[query["uploadId"]][3]
            given = [piece.partition("</PartNumber>") for piece in body.decode().split("<PartNumber>")[1:]]
            numbers = [int(piece[0]) for piece in given]
            if numbers != sorted(set(numbers)) or any(number not in parts or parts[number][1] not in piece[2] for number, piece in zip(numbers, given)):
                raise Refused(400, "InvalidPart", "a part is missing or another one")
            if any(len(parts[number][0]) < LEAST_PART for number in numbers[:-1]):
                raise Refused(400, "EntityTooSmall", "a part is too small")
            whole = b"".join(parts[number][0] for number in numbers)
            tag = "%s-%d" % (hashlib.md5("".join(parts[number][1] for number in numbers).encode()).hexdigest(), len(numbers))
            store(name, bucket, key, Thing(whole, tag, UPLOADS.pop(query["uploadId"])[2]))
            return 200, {}, ("<CompleteMultipartUploadResult><ETag>&quot;%s&quot;</ETag></CompleteMultipartUploadResult>" % tag).encode()
        if method == "DELETE" and "uploadId" in query:
            if UPLOADS.pop(query["uploadId"], None) is None:
                raise Refused(404, "NoSuchUpload", "there is no such upload")
            return 204, {}, b""
        if method in ("GET", "HEAD"):
            one = bucket.get(key)
            if one is None:
                raise Refused(404, "NoSuchKey", "there is no such key")
            if headers.get("if-match", '"%s"' % one.tag) != '"%s"' % one.tag:
                raise Refused(412, "PreconditionFailed", "it is another one")
            found = dict(one.meta, ETag='"%s"' % one.tag)
            if "range" in headers:
                first, _, last = headers["range"][len("bytes="):].partition("-")
                return 206, found, one.body[int(first):int(last) + 1]
            return 200, found, one.body
    raise Refused(405, "MethodNotAllowed", "nothing is deleted here")


def control(method, path, body):
    """What tests ask."""
    with LOCK:
        if method == "POST":
            given = json.loads(body)
            KEYS.update(given.pop("keys", {}))
            for name, objects in given.pop("objects", {}).items():
                for key, text in objects.items():
                    BUCKETS.setdefault(name, {})[key] = Thing(text.encode(), hashlib.md5(text.encode()).hexdigest(), {})
            for key in given.pop("gone", []):
                BUCKETS["bucket"].pop(key, None)
            unknown = set(given) - set(FAULTS)
            assert not unknown, unknown
            FAULTS.update(given)
            return b"{}"
        held = {name: {key: {"size": len(one.body), "sha256": hashlib.sha256(one.body).hexdigest(), "meta": one.meta} for key, one in objects.items()}
                for name, objects in BUCKETS.items()}
        return json.dumps({**SEEN, "held": held, "uploads": len(UPLOADS)}).encode()


class Handler(socketserver.StreamRequestHandler):
    """One connection."""

    disable_nagle_algorithm = True

    def handle(self):
        while True:
            line = self.rfile.readline(65536).decode("latin-1")
            if not line:
                return
            method, target, _ = line.split(" ", 2)
            headers = {}
            while True:
                line = self.rfile.readline(65536).decode("latin-1").rstrip("\r\n")
                if not line:
                    break
                name, _, value = line.partition(":")
                headers[name.lower()] = value.strip()
            path, _, query = target.partition("?")
            ours = path.startswith("/-/")
            if FAULTS["away"] and not ours:
                return
            body = self.body(int(headers.get("content-length", 0)), None if ours else FAULTS["rate"])
            if len(body) < int(headers.get("content-length", 0)):
                # Whoever sent it has ended.
                return
            if ours:
                status, more, content = 200, {}, control(method, path, body)
            else:
                if FAULTS["pause"]:
                    time.sleep(FAULTS["pause"])
                SEEN["requests"][method] += 1
                try:
                    status, more, content = answer(method, path, query, headers, body)
                except Refused as refused:
                    status, code, message = refused.args
                    more, content = {}, ("<Error><Code>%s</Code><Message>%s</Message></Error>" % (code, escape(message))).encode()
                    if code in ("SignatureDoesNotMatch", "XAmzContentSHA256Mismatch", "BadDigest") or message.startswith("not signed"):
                        SEEN["bad"].append("%s %s: %s" % (method, path, code))
            date = email.utils.formatdate(time.time() + FAULTS["ahead"], usegmt=True)
            head = "HTTP/1.1 %d .\r\nDate: %s\r\nContent-Length: %d\r\n" % (status, date, len(content))
            head += "".join("%s: %s\r\n" % one for one in more.items())
            try:
                self.wfile.write(head.encode() + b"\r\n" + (b"" if method == "HEAD" else content))
            except OSError:
                return
            if headers.get("connection", "").lower() == "close":
                return

    def body(self, length, rate):
        """Reads a body, at most so many bytes per second over all connections."""
        if not rate:
            return self.rfile.read(length)
        blocks = []
        while length:
            count = min(length, 1 << 14)
            with LOCK:
                PACE["at"] = max(PACE["at"], time.monotonic()) + count / rate
                due = PACE["at"]
            time.sleep(max(0, due - time.monotonic()))
            blocks.append(self.rfile.read(count))
            length -= count
        return b"".join(blocks)


class Server(socketserver.ThreadingTCPServer):
    """The server."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def main():
    server = Server((sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1", 0), Handler)
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    with open(sys.argv[1] + ".new", "w") as file:
        file.write(str(server.server_address[1]))
    os.replace(sys.argv[1] + ".new", sys.argv[1])
    server.serve_forever()


if __name__ == "__main__":
    main()
