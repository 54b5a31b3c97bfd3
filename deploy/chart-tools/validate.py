"""Compares manifests with schemas. Unknown fields are errors.

validate.py VERSION [--definition FILE]... MANIFEST...

VERSION is that of Kubernetes, such as 1.36. A definition is a CustomResourceDefinition. Prints a line
per error. The exit code is 1 if there is one, or if a kind has no schema.
"""

import argparse
import sys

import jsonschema
import kubernetes_validate
import yaml


def closed(schema):
    """Returns a schema of a definition as JSON Schema, which refuses unknown fields."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    made = {key: closed(part) for key, part in schema.items() if key != "properties"}
    if "properties" in schema:
        made["properties"] = {name: closed(part) for name, part in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            made.setdefault("additionalProperties", False)
    if schema.get("nullable") and "type" in schema:
        made["type"] = [schema["type"], "null"]
    return made


def definitions(files):
    """Returns the schemas of the definitions, by API version and kind."""
    found = {}
    for file in files:
        for definition in documents(file):
            spec = definition["spec"]
            for version in spec["versions"]:
                schema = closed(version["schema"]["openAPIV3Schema"])
                schema["properties"]["metadata"] = {"type": "object"}
                found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return found


def documents(file):
    with open(file, encoding="utf-8") as text:
        return [document for document in yaml.safe_load_all(text) if document]


def problems(document, version, schemas):
    """Returns the texts of the errors of an object."""
    schema = schemas.get((document["apiVersion"], document["kind"]))
    if schema is not None:
        errors = jsonschema.Draft202012Validator(schema).iter_errors(document)
        return [f"{error.json_path}: {error.message}" for error in errors]
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{'.'.join(map(str, error.path))}: {error.message}"]
    except kubernetes_validate.SchemaNotFoundError as error:
        return [error.message]
    return []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("version")
    parser.add_argument("--definition", action="append", default=[])
    parser.add_argument("manifests", nargs="+")
    arguments = parser.parse_args()
    schemas = definitions(arguments.definition)
    count, failed = 0, False
    for manifest in arguments.manifests:
        for document in documents(manifest):
            count += 1
            for problem in problems(document, arguments.version, schemas):
                name = document["metadata"]["name"]
                print(f"{manifest}: {document['kind']} {name}: {problem}")
                failed = True
    print(f"{count} objects compared with their schemas")
    sys.exit(failed or not count)


main()
