/** Models in ONNX's format, written by hand: onnx.proto3 has the numbers of the fields. */

const FLOAT = 1;
const IR_VERSION = 8;
const OPSET = 13;

const varint = (value: number): number[] => (value < 128 ? [value] : [(value & 127) | 128, ...varint(value >>> 7)]);
const bytes = (field: number, content: readonly number[]): number[] => [
  ...varint((field << 3) | 2),
  ...varint(content.length),
  ...content,
];
const text = (field: number, value: string): number[] => bytes(field, [...Buffer.from(value)]);
const number = (field: number, value: number): number[] => [...varint(field << 3), ...varint(value)];

/** A tensor of FP32. Names as dimensions: they may be of any size. */
function valueInfo(name: string, dimensions: readonly (number | string)[]): number[] {
  const shape = dimensions.flatMap((each) => bytes(1, typeof each === "number" ? number(1, each) : text(2, each)));
  const tensor = [...number(1, FLOAT), ...bytes(2, shape)];
  return [...text(1, name), ...bytes(2, bytes(1, tensor))];
}

export interface OnnxNode {
  readonly operator: string;
  readonly inputs: readonly string[];
  readonly output: string;
}

/** @returns a model with one input X and one output, that of its last node; both of `dimensions` */
export function onnxModel(nodes: readonly OnnxNode[], dimensions: readonly (number | string)[]): Uint8Array {
  const steps = nodes.flatMap(({ operator, inputs, output }) =>
    bytes(1, [...inputs.flatMap((each) => text(1, each)), ...text(2, output), ...text(4, operator)]),
  );
  const last = nodes.at(-1)?.output ?? "X";
  const graph = [
    ...[...steps, ...text(2, "g")],
    ...bytes(11, valueInfo("X", dimensions)),
    ...bytes(12, valueInfo(last, dimensions)),
  ];
  return Uint8Array.from([...number(1, IR_VERSION), ...bytes(7, graph), ...bytes(8, number(2, OPSET))]);
}
