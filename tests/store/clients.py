"""What boto3 and pyarrow do with the store whose keys are in the environment."""
import io
import os
import urllib.error
import urllib.request

import boto3
import pyarrow.fs
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

# As of Amazon: signatures of version 4.
s3 = boto3.client("s3", config=Config(signature_version="s3v4"))
s3.create_bucket(Bucket="mine")
assert "mine" in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
s3.put_object(Bucket="mine", Key="a", Body=b"0123456789", Metadata={"k": "v"})
head = s3.head_object(Bucket="mine", Key="a")
assert head["ContentLength"] == 10 and head["Metadata"] == {"k": "v"}, head
assert s3.get_object(Bucket="mine", Key="a", Range="bytes=2-4")["Body"].read() == b"234"
print("create, put, range: ok")

content = os.urandom(21 << 20)
s3.upload_fileobj(io.BytesIO(content), "mine", "large", Config=TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20))
assert s3.get_object(Bucket="mine", Key="large")["Body"].read() == content
begun = s3.create_multipart_upload(Bucket="mine", Key="never")["UploadId"]
s3.upload_part(Bucket="mine", Key="never", UploadId=begun, PartNumber=1, Body=b"x" * (5 << 20))
s3.abort_multipart_upload(Bucket="mine", Key="never", UploadId=begun)
print("multipart: ok")

for number in range(1100):
    s3.put_object(Bucket="mine", Key=f"many/{number:04}", Body=b"")
pages = list(s3.get_paginator("list_objects_v2").paginate(Bucket="mine", Prefix="many/"))
keys = [one["Key"] for page in pages for one in page["Contents"]]
assert len(pages) == 2 and keys == [f"many/{number:04}" for number in range(1100)], (len(pages), len(keys))
print("list of 1,100 in", len(pages), "pages: ok")

url = s3.generate_presigned_url("get_object", Params={"Bucket": "mine", "Key": "a"}, ExpiresIn=60)
assert urllib.request.urlopen(url).read() == b"0123456789"
try:
    urllib.request.urlopen(url.replace("Signature=", "Signature=0"))
    raise AssertionError("a wrong signature was accepted")
except urllib.error.HTTPError as error:
    assert error.code == 403, error
put = s3.generate_presigned_url("put_object", Params={"Bucket": "mine", "Key": "by-url"}, ExpiresIn=60)
urllib.request.urlopen(urllib.request.Request(put, data=b"by url", method="PUT"))
assert s3.get_object(Bucket="mine", Key="by-url")["Body"].read() == b"by url"
print("presign: ok")

for at in range(0, 1100, 1000):
    s3.delete_objects(Bucket="mine", Delete={"Objects": [{"Key": key} for key in keys[at : at + 1000]]})
assert s3.list_objects_v2(Bucket="mine", Prefix="many/").get("KeyCount", 0) == 0
s3.delete_object(Bucket="mine", Key="a")
try:
    s3.head_object(Bucket="mine", Key="a")
    raise AssertionError("it is still there")
except ClientError as error:
    assert error.response["Error"]["Code"] == "404", error
for key in ("large", "by-url"):
    s3.delete_object(Bucket="mine", Key=key)
s3.delete_bucket(Bucket="mine")
print("delete: ok")

system, path = pyarrow.fs.FileSystem.from_uri("s3://ray/arrow/tree")
system.create_dir(path)
with system.open_output_stream(f"{path}/one") as stream:
    stream.write(content)
assert system.get_file_info(f"{path}/one").size == len(content)
with system.open_input_file(f"{path}/one") as file:
    file.seek(5)
    assert file.read(10) == content[5:15]
system.move(f"{path}/one", f"{path}/two")
assert [one.base_name for one in system.get_file_info(pyarrow.fs.FileSelector(path))] == ["two"]
system.delete_dir(path)
print("pyarrow: ok")
