/**
 * The messages and calls of a gRPC API as its owner publishes them: names, numbers and types of fields. Read from the
 * descriptors that a Go program carries in its binary, or from a list with one fact a line:
 *
 *     field runtime.v1.Mount 6 uid_mappings repeated runtime.v1.IDMapping
 *     value runtime.v1.Signal 15 SIGTERM
 *     call /runtime.v1.RuntimeService/Version runtime.v1.VersionRequest runtime.v1.VersionResponse
 */
import { readFileSync } from "node:fs";
import { constants, gunzipSync } from "node:zlib";
import { bool, int32, type MessageOf, message, nested, repeated, string } from "@picolet/runtime-cri/wire/protobuf.ts";

export interface PublishedField {
  readonly number: number;
  /** As the .proto has it. */
  readonly name: string;
  /** `repeated` is a list; `map` a map with strings as keys, whose values are taken for strings too. */
  readonly label: "single" | "repeated" | "map";
  /** A scalar type by its name, `enum`, or a message's full name. */
  readonly type: string;
}

interface PublishedCall {
  readonly request: string;
  readonly response: string;
}

const FieldDescriptor = message("FieldDescriptorProto", {
  name: string(1),
  number: int32(3),
  label: int32(4),
  type: int32(5),
  typeName: string(6),
});
const EnumDescriptor = message("EnumDescriptorProto", {
  name: string(1),
  values: repeated(2, message("EnumValueDescriptorProto", { name: string(1), number: int32(2) })),
});
const InnerDescriptor = message("DescriptorProto", {
  name: string(1),
  fields: repeated(2, FieldDescriptor),
  options: nested(7, message("MessageOptions", { isMapEntry: bool(7) })),
});
const MessageDescriptor = message("DescriptorProto", {
  name: string(1),
  fields: repeated(2, FieldDescriptor),
  nestedTypes: repeated(3, InnerDescriptor),
  enums: repeated(4, EnumDescriptor),
});
const FileDescriptor = message("FileDescriptorProto", {
  name: string(1),
  package: string(2),
  messages: repeated(4, MessageDescriptor),
  enums: repeated(5, EnumDescriptor),
  services: repeated(
    6,
    message("ServiceDescriptorProto", {
      name: string(1),
      methods: repeated(
        2,
        message("MethodDescriptorProto", { name: string(1), inputType: string(2), outputType: string(3) }),
      ),
    }),
  ),
});

const REPEATED = 3;
/** FieldDescriptorProto.Type. */
const TYPES: ReadonlyMap<number, string> = new Map([
  [1, "double"],
  [3, "int64"],
  [4, "uint64"],
  [5, "int32"],
  [8, "bool"],
  [9, "string"],
  [12, "bytes"],
  [13, "uint32"],
  [14, "enum"],
]);
const MESSAGE = 11;
const GZIP = Buffer.from([0x1f, 0x8b, 8]);
/** The largest descriptor of a Kubernetes package has 20 KB compressed. */
const MAX_DESCRIPTOR_BYTES = 400_000;

export class PublishedApi {
  readonly messages = new Map<string, PublishedField[]>();
  readonly enums = new Map<string, Map<string, number>>();
  readonly calls = new Map<string, PublishedCall>();

  static fromList(path: string): PublishedApi {
    const api = new PublishedApi();
    for (const line of readFileSync(path, "utf8").trim().split("\n")) api.#addLine(line);
    return api;
  }

  /** @param program Go's generated code keeps each file's descriptor compressed by itself */
  static fromProgram(program: string, packages: RegExp): PublishedApi {
    const binary = readFileSync(program);
    const api = new PublishedApi();
    for (let at = binary.indexOf(GZIP); at >= 0; at = binary.indexOf(GZIP, at + 1)) {
      const file = descriptorAt(binary, at);
      if (file !== undefined && packages.test(file.package)) api.#addFile(file);
    }
    return api;
  }

  fieldsOf(name: string): readonly PublishedField[] {
    const fields = this.messages.get(name);
    if (fields === undefined) throw new Error(`there is no message ${name}`);
    return fields;
  }

  /** As `fromList` reads them, in order. */
  lines(): readonly string[] {
    const fields = [...this.messages].flatMap(([name, all]) =>
      [...all]
        .sort((a, b) => a.number - b.number)
        .map((each) => `field ${name} ${each.number} ${each.name} ${each.label} ${each.type}`),
    );
    const values = [...this.enums].flatMap(([name, all]) =>
      [...all].sort(([, a], [, b]) => a - b).map(([value, number]) => `value ${name} ${number} ${value}`),
    );
    const calls = [...this.calls].map(([path, { request, response }]) => `call ${path} ${request} ${response}`);
    return [...fields, ...values, ...calls];
  }

  addField(owner: string, field: PublishedField | undefined): void {
    const fields = this.messages.get(owner) ?? [];
    this.messages.set(owner, fields);
    if (field !== undefined) fields.push(field);
  }

  addValue(owner: string, name: string, number: number): void {
    this.enums.set(owner, (this.enums.get(owner) ?? new Map()).set(name, number));
  }

  #addLine(line: string): void {
    const [kind = "", owner = "", first = "", second = "", label = "", type = ""] = line.split(" ");
    if (kind === "field") {
      this.addField(owner, { number: Number(first), name: second, label: label as PublishedField["label"], type });
    } else if (kind === "value") this.addValue(owner, second, Number(first));
    else if (kind === "call") this.calls.set(owner, { request: first, response: second });
    else throw new Error(`cannot read ${JSON.stringify(line)}`);
    for (const each of kind === "call" ? [first, second] : [])
      if (!this.messages.has(each)) this.addField(each, undefined);
  }

  #addFile({ package: space, messages, enums, services }: File): void {
    for (const { name, fields, nestedTypes, enums: inner } of messages) {
      const owner = `${space}.${name}`;
      const maps = new Set<string>();
      for (const each of nestedTypes) {
        if (each.options?.isMapEntry) maps.add(`.${owner}.${each.name}`);
        else this.#addMessage(`${owner}.${each.name}`, each.fields, maps);
      }
      this.#addMessage(owner, fields, maps);
      for (const each of inner) this.#addEnum(`${owner}.${each.name}`, each);
    }
    for (const each of enums) this.#addEnum(`${space}.${each.name}`, each);
    for (const service of services) {
      for (const { name, inputType, outputType } of service.methods) {
        const call = { request: inputType.slice(1), response: outputType.slice(1) };
        this.calls.set(`/${space}.${service.name}/${name}`, call);
      }
    }
  }

  #addMessage(name: string, fields: readonly Descriptor[], maps: ReadonlySet<string>): void {
    this.addField(name, undefined);
    for (const field of fields) this.addField(name, fieldOf(field, maps));
  }

  #addEnum(name: string, { values }: MessageOf<typeof EnumDescriptor>): void {
    for (const each of values) this.addValue(name, each.name, each.number);
  }
}

type Descriptor = MessageOf<typeof FieldDescriptor>;
type File = MessageOf<typeof FileDescriptor>;

function fieldOf(field: Descriptor, maps: ReadonlySet<string>): PublishedField {
  const { name, number, label, type, typeName } = field;
  if (maps.has(typeName)) return { number, name, label: "map", type: "string" };
  const known = type === MESSAGE ? typeName.slice(1) : TYPES.get(type);
  return { number, name, label: label === REPEATED ? "repeated" : "single", type: known ?? `type ${type}` };
}

function descriptorAt(binary: Buffer, at: number): File | undefined {
  try {
    const part = binary.subarray(at, at + MAX_DESCRIPTOR_BYTES);
    const file = FileDescriptor.decode(gunzipSync(part, { finishFlush: constants.Z_SYNC_FLUSH }));
    return file.name.endsWith(".proto") ? file : undefined;
  } catch {
    return undefined;
  }
}
