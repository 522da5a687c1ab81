"""An object store that speaks S3: signed requests (Signature Version 4), each with the digest of what it carries.

Paths, not names of hosts, say the bucket. A call that fails for a while is made again, until the time that the caller
gives. Standard library only, Python 3.6 or newer.
"""

import base64
import email.utils
import hashlib
import hmac
import http.client
import re
import ssl
import threading
import time
import urllib.parse
import urllib.request
from xml.etree import ElementTree

from record import Failed, one_line

# How long a store may be silent, in seconds.
SILENCE_S = 20
# The pauses between attempts, in seconds: they double up to the longest one.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 8
ATTEMPTS = 6
# The longest answer that is read as a whole, in bytes: a thousand long keys, encoded.
LONGEST_ANSWER = 16 << 20
# The digest of nothing.
EMPTY = hashlib.sha256(b"").hexdigest()
# S3's longest key, in bytes.
LONGEST_KEY = 1024
FULL = ("EntityTooLarge", "QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "InsufficientCapacity", "StorageFull")


class Refusal(Failed):
    """What a store answers instead of doing it. `kind`: away, refused, full, missing, changed, other."""

    def __init__(self, kind, text, code=""):
        super().__init__(text)
        self.kind, self.code = kind, code


class Object:
    """An object in a list."""

    __slots__ = ("size", "tag", "time")

    def __init__(self, size, tag, written):
        self.size, self.tag, self.time = size, tag, written


def quoted(text, safe="/"):
    """A text as V4 encodes it."""
    return urllib.parse.quote(text, safe=safe + "~")


class Store:
    """One store, with one pair of keys. Used by many threads, each with a connection of its own."""

    def __init__(self, endpoint, region, credentials):
        parts = urllib.parse.urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Failed("%s is no address of an object store" % one_line(endpoint))
        self.endpoint, self.region, self.credentials = endpoint.rstrip("/"), region or "us-east-1", credentials
        self.secure, self.host, self.port = parts.scheme == "https", parts.hostname, parts.port
        # `Host` as http.client and every store write it: without the scheme's own port.
        name = "[%s]" % self.host if ":" in self.host else self.host
        usual = 443 if self.secure else 80
        self.name = name if self.port in (None, usual) else "%s:%d" % (name, self.port)
        self.base = parts.path.rstrip("/")
        self.proxy = self.proxy_of(parts)
        self.context = ssl.create_default_context() if self.secure else None
        # By how many seconds this machine's clock is behind the store's.
        self.behind = 0.0
        # Whether the store takes a checksum of its own beside the signed digest.
        self.takes_checksums = True
        # How many bytes were sent, for what is measured.
        self.sent = 0
        self.own, self.day = threading.local(), ("", b"")
        self.read_keys()

    def proxy_of(self, parts):
        """The proxy that this machine's environment names for the store."""
        if urllib.request.proxy_bypass(self.host) or self.host in ("127.0.0.1", "localhost", "::1"):
            return None
        text = urllib.request.getproxies().get(parts.scheme)
        return urllib.parse.urlsplit(text if "//" in text else "http://" + text) if text else None

    def read_keys(self):
        """Reads the keys, which have the form of `~/.aws/credentials`; they may have been replaced since."""
        try:
            with open(self.credentials, encoding="utf-8") as file:
                lines = [line.partition("=") for line in file if "=" in line]
        except (OSError, UnicodeDecodeError) as error:
            raise Failed("the keys of %s cannot be read: %s" % (self.endpoint, error)) from None
        found = {name.strip(): value.strip() for name, _, value in lines}
        try:
            keys = found["aws_access_key_id"], found["aws_secret_access_key"], found.get("aws_session_token")
        except KeyError as error:
            raise Failed("%s has no %s" % (self.credentials, error.args[0])) from None
        self.keys, self.day = keys, ("", b"")

    def signing_key(self, day):
        """The key of one day's signatures."""
        known, key = self.day
        if known != day:
            key = ("AWS4" + self.keys[1]).encode()
            for part in (day, self.region, "s3", "aws4_request"):
                key = hmac.new(key, part.encode(), hashlib.sha256).digest()
            self.day = (day, key)
        return key

    def signed(self, method, path, query, headers, digest):
        """The headers of a request, with its signature."""
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() + self.behind))
        day, (public, _, token) = now[:8], self.keys
        signed = {"host": self.name, "x-amz-date": now, "x-amz-content-sha256": digest}
        if token:
            signed["x-amz-security-token"] = token
        signed.update(headers)
        names = sorted(signed)
        lines = [method, path, query] + ["%s:%s" % (name, signed[name]) for name in names]
        request = "\n".join(lines + ["", ";".join(names), digest])
        scope = "%s/%s/s3/aws4_request" % (day, self.region)
        text = "AWS4-HMAC-SHA256\n%s\n%s\n%s" % (now, scope, hashlib.sha256(request.encode()).hexdigest())
        signature = hmac.new(self.signing_key(day), text.encode(), hashlib.sha256).hexdigest()
        signed["authorization"] = "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s" % (
            public, scope, ";".join(names), signature)
        return signed

    def connection(self):
        """This thread's connection."""
        found = getattr(self.own, "connection", None)
        if found is None:
            kind, more = (http.client.HTTPSConnection, {"context": self.context}) if self.secure else (http.client.HTTPConnection, {})
            if self.proxy is None:
                found = kind(self.host, self.port, timeout=SILENCE_S, **more)
            else:
                found = kind(self.proxy.hostname, self.proxy.port or 8080, timeout=SILENCE_S, **more)
                if self.secure:
                    found.set_tunnel(self.host, self.port or 443)
            self.own.connection = found
        return found

    def hang_up(self):
        """Closes this thread's connection."""
        found, self.own.connection = getattr(self.own, "connection", None), None
        if found is not None:
            found.close()

    def once(self, method, bucket, key, query, headers, body, digest):
        """Makes a call once; returns its status, headers and body."""
        path = self.base + "/" + quoted(bucket) + ("/" + quoted(key) if key else "")
        text = "&".join("%s=%s" % (quoted(name, ""), quoted(value, "")) for name, value in sorted(query.items()))
        signed = self.signed(method, path, text, headers, digest)
        target = path + ("?" + text if text else "")
        if self.proxy is not None and not self.secure:
            target = "http://" + self.name + target
        try:
            connection = self.connection()
            fresh = connection.sock is None
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in signed.items():
                connection.putheader(name, value)
            if method in ("PUT", "POST"):
                connection.putheader("content-length", str(len(body)))
            # In one packet with a small body.
            connection.endheaders(body if 0 < len(body) < 1 << 16 else None)
            if len(body) >= 1 << 16:
                # Piece by piece: the limit of silence is one for each of them.
                view = memoryview(body)
                for first in range(0, len(body), 1 << 16):
                    connection.send(view[first:first + (1 << 16)])
                    self.sent += min(1 << 16, len(body) - first)
            else:
                self.sent += len(body)
            answer = connection.getresponse()
            content = answer.read(LONGEST_ANSWER)
            if answer.will_close or not answer.isclosed():
                self.hang_up()
            return answer.status, answer.headers, content
        except (OSError, http.client.HTTPException) as error:
            self.hang_up()
            # A connection that was kept open may have been closed by the store: that says nothing about the store.
            raise Refusal("stale" if not fresh else "away", one_line("no answer from %s: %s" % (self.endpoint, error or type(error).__name__)))

    def call(self, method, bucket, key="", query=None, headers=None, body=b"", until=None, digest=None):
        """Makes a call, again where it fails for a while; returns its headers and body, and raises Refusal.

        `until` is when the last attempt may begin, on the monotonic clock."""
        if len(key.encode()) > LONGEST_KEY:
            raise Refusal("other", "a key may have %d bytes: %s…" % (LONGEST_KEY, one_line(key)[:60]))
        digest = digest or (hashlib.sha256(body).hexdigest() if body else EMPTY)
        pause, skewed, attempt = FIRST_PAUSE_S, False, 0
        while True:
            try:
                status, answer, content = self.once(method, bucket, key, query or {}, headers or {}, body, digest)
            except Refusal as refusal:
                if refusal.kind == "stale":
                    continue
                failure = refusal
            else:
                code = inside(content, "Code")
                if status < 300 and not (status == 200 and content.lstrip()[:200].find(b"<Error>") >= 0):
                    return answer, content
                if code == "RequestTimeTooSkewed" and not skewed and answer.get("Date"):
                    # This machine's clock is wrong, which is no reason to lose anything.
                    skewed = True
                    self.behind = email.utils.parsedate_to_datetime(answer["Date"]).timestamp() - time.time()
                    continue
                failure = self.refusal(method, bucket, key, status, code, inside(content, "Message"))
                if failure.kind != "away":
                    raise failure
            attempt += 1
            if attempt >= ATTEMPTS or (until is not None and time.monotonic() + pause >= until):
                raise failure
            time.sleep(pause)
            pause = min(LONGEST_PAUSE_S, pause * 2)

    def refusal(self, method, bucket, key, status, code, message):
        """What an answer that is no success means."""
        said = "HTTP %d%s" % (status, "".join((" " + code if code else "", ": " + message if message else "")))
        text = one_line("%s refuses %s s3://%s/%s: %s" % (self.endpoint, method, bucket, key[:80], said))
        if status == 507 or code in FULL:
            kind = "full"
        elif status in (401, 403):
            kind = "refused"
        elif status == 404:
            kind = "missing"
        elif status == 412:
            kind = "changed"
        elif status in (408, 429) or (status >= 500 and status != 501) or status == 200 or code in ("SlowDown", "RequestTimeout"):
            kind = "away"
        else:
            kind = "other"
        return Refusal(kind, text, code)

    # What is asked of a store.

    def list(self, bucket, prefix, until=None):
        """All objects whose keys begin with `prefix`, by their keys."""
        found, page = {}, None
        while True:
            query = {"list-type": "2", "prefix": prefix, "encoding-type": "url", "max-keys": "1000"}
            if page:
                query["continuation-token"] = page
            _, content = self.call("GET", bucket, query=query, until=until)
            try:
                tree = ElementTree.fromstring(content)
            except ElementTree.ParseError:
                raise Refusal("other", "%s answers with a list that cannot be read" % self.endpoint) from None
            encoded = text_of(tree, "EncodingType") == "url"
            for one in tree:
                if local(one) == "Contents":
                    key = text_of(one, "Key")
                    key = urllib.parse.unquote_plus(key) if encoded else key
                    found[key] = Object(int(text_of(one, "Size") or 0), text_of(one, "ETag").strip('"'), text_of(one, "LastModified"))
            before, page = page, text_of(tree, "NextContinuationToken")
            if text_of(tree, "IsTruncated") != "true" or not page or page == before:
                return found

    def uploads(self, bucket, prefix, until=None):
        """The uploads in parts that are not complete, of keys that begin with `prefix`: key and id, a thousand at most."""
        _, content = self.call("GET", bucket, query={"uploads": "", "prefix": prefix, "encoding-type": "url"}, until=until)
        try:
            tree = ElementTree.fromstring(content)
        except ElementTree.ParseError:
            return []
        found = [(text_of(one, "Key"), text_of(one, "UploadId")) for one in tree if local(one) == "Upload"]
        encoded = text_of(tree, "EncodingType") == "url"
        return [(urllib.parse.unquote_plus(key) if encoded else key, upload) for key, upload in found]

    def head(self, bucket, key, until=None):
        """The headers of an object, or None without one."""
        try:
            return self.call("HEAD", bucket, key, until=until)[0]
        except Refusal as refusal:
            if refusal.kind == "missing":
                return None
            raise

    def get(self, bucket, key, first, count, tag, until=None):
        """Reads `count` bytes from `first` on, of the object with this tag."""
        headers = {"range": "bytes=%d-%d" % (first, first + count - 1)}
        if tag:
            headers["if-match"] = '"%s"' % tag
        answer, content = self.call("GET", bucket, key, headers=headers if count else {}, until=until)
        if len(content) != count:
            raise Refusal("changed", "s3://%s/%s was replaced while it was read" % (bucket, one_line(key)))
        return content

    def put(self, bucket, key, body, digest, more, until=None):
        """Writes an object in one call; returns its tag."""
        headers = {"x-amz-meta-" + name: value for name, value in more.items()}
        if self.takes_checksums:
            headers["x-amz-checksum-sha256"] = base64.b64encode(bytes.fromhex(digest)).decode()
        try:
            answer, _ = self.call("PUT", bucket, key, headers=headers, body=body, until=until, digest=digest)
        except Refusal as refusal:
            if refusal.kind != "other" or "x-amz-checksum-sha256" not in headers or refusal.code not in ("NotImplemented", "InvalidArgument", "InvalidRequest"):
                raise
            self.takes_checksums = False
            return self.put(bucket, key, body, digest, more, until)
        return (answer.get("ETag") or "").strip('"')

    def copy(self, bucket, key, to, until=None):
        """Copies an object inside of a bucket."""
        self.call("PUT", bucket, to, headers={"x-amz-copy-source": "/%s/%s" % (quoted(bucket), quoted(key))}, until=until)

    def begin(self, bucket, key, more, until=None):
        """Begins an upload in parts; returns its id."""
        headers = {"x-amz-meta-" + name: value for name, value in more.items()}
        _, content = self.call("POST", bucket, key, query={"uploads": ""}, headers=headers, until=until)
        found = inside(content, "UploadId")
        if not found:
            raise Refusal("other", "%s begins no upload in parts" % self.endpoint)
        return found

    def part(self, bucket, key, upload, number, body, digest, until=None):
        """Writes one part; returns its tag."""
        query = {"partNumber": str(number), "uploadId": upload}
        answer, _ = self.call("PUT", bucket, key, query=query, body=body, until=until, digest=digest)
        return (answer.get("ETag") or "").strip('"')

    def complete(self, bucket, key, upload, tags, until=None):
        """Completes an upload in parts; returns the object's tag."""
        parts = "".join("<Part><PartNumber>%d</PartNumber><ETag>&quot;%s&quot;</ETag></Part>" % one for one in enumerate(tags, 1))
        body = ("<CompleteMultipartUpload>%s</CompleteMultipartUpload>" % parts).encode()
        _, content = self.call("POST", bucket, key, query={"uploadId": upload}, body=body, until=until)
        return inside(content, "ETag").replace("&quot;", "").strip('"')

    def give_up(self, bucket, key, upload, until=None):
        """Gives up an upload in parts, so that the store keeps nothing of it."""
        try:
            self.call("DELETE", bucket, key, query={"uploadId": upload}, until=until)
        except Refusal as refusal:
            if refusal.kind != "missing":
                raise


def local(element):
    """An element's name without its namespace."""
    return element.tag.rpartition("}")[2]


def text_of(tree, name):
    """The text of an element's part, which is empty where there is none."""
    return next((one.text or "" for one in tree if local(one) == name), "")


def inside(content, name):
    """The text of the first element of this name, wherever it is."""
    found = re.search("<%s>([^<]*)</%s>" % (name, name), content[:65536].decode("utf-8", "replace"))
    return one_line(found.group(1)) if found else ""
