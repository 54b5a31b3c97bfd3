"""The contract's messages and methods, from its compiled form `tandem.binpb` beside this file.

Any protobuf from 4.22 on can read it; generated code would need a certain version.
"""

import pathlib

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "tandem.generate.v1"
FILE = pathlib.Path(__file__).resolve().parent / "tandem.binpb"


def _pool():
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(FILE.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


POOL = _pool()


def message(name):
    """Returns the class of a message of the generation contract."""
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


def method(channel, name):
    """Returns a method of GenerateService, to be called."""
    described = POOL.FindServiceByName(f"{PACKAGE}.GenerateService").methods_by_name[name]
    call = channel.unary_stream if described.server_streaming else channel.unary_unary
    request, response = (message_factory.GetMessageClass(kind) for kind in (described.input_type, described.output_type))
    path = f"/{PACKAGE}.GenerateService/{name}"
    return call(path, request_serializer=request.SerializeToString, response_deserializer=response.FromString)
