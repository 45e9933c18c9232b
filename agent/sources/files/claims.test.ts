import assert from "node:assert/strict";
import { test } from "node:test";
import { samplePod } from "@picolet/test/support/unit/store/store-samples.ts";
import { type FileVersion, settleClaims } from "./claims.ts";

const version = (path: string, fields: Partial<FileVersion> = {}): FileVersion => ({
  path,
  current: [],
  next: undefined,
  isMissing: false,
  ...fields,
});
const pod = (name: string, origin: string, image = "i:1") => {
  const made = samplePod(name, { origin, image });
  return { ...made, uid: `${made.uid}-${image}` as typeof made.uid };
};

/** `name@file`, and the refused files with their reasons. */
function settled(versions: readonly FileVersion[], maxPods = 100): { pods: string[]; refused: Record<string, string> } {
  const { pods, refused } = settleClaims(versions, maxPods);
  return {
    pods: pods.map(({ pod: { metadata }, origin }) => `${metadata.name}@${origin}`).toSorted(),
    refused: Object.fromEntries(refused),
  };
}

test("new files are taken, unchanged ones stay", () => {
  const result = settled([
    version("/a", { current: [pod("a", "/a")] }),
    version("/b", { next: [pod("b", "/b"), pod("c", "/b")] }),
    version("/d", { current: [pod("d", "/d")], next: [pod("e", "/d")] }),
  ]);
  assert.deepEqual(result, { pods: ["a@/a", "b@/b", "c@/b", "e@/d"], refused: {} });
});

test("of two new files with one name the first by path has it, the other is refused whole", () => {
  const { pods, refused } = settled([
    version("/b", { next: [pod("x", "/b"), pod("y", "/b")] }),
    version("/a", { next: [pod("x", "/a")] }),
  ]);
  assert.deepEqual(pods, ["x@/a"]);
  assert.match(refused["/b"] ?? "", /^metadata\.name: Duplicate value: pod default\/x is that of \/a; give one/);
});

test("a pod that is wanted already stays with its file, first by path or not, changed or not", () => {
  const newcomer = version("/a", { next: [pod("x", "/a")] });
  for (const next of [undefined, [pod("x", "/b", "i:2")]]) {
    const { pods, refused } = settled([newcomer, version("/b", { current: [pod("x", "/b")], next })]);
    assert.deepEqual(pods, ["x@/b"]);
    assert.deepEqual(Object.keys(refused), ["/a"]);
  }
});

test("a file that is refused keeps what it had, and so keeps others from it", () => {
  const { pods, refused } = settled([
    version("/a", { current: [pod("a", "/a")] }),
    version("/b", { current: [pod("b", "/b")], next: [pod("a", "/b")] }),
    version("/c", { next: [pod("b", "/c")] }),
  ]);
  assert.deepEqual(pods, ["a@/a", "b@/b"]);
  assert.deepEqual(Object.keys(refused).toSorted(), ["/b", "/c"]);
});

test("names can change hands when both files say so", () => {
  const { pods, refused } = settled([
    version("/a", { current: [pod("x", "/a")], next: [pod("y", "/a", "i:2")] }),
    version("/b", { current: [pod("y", "/b")], next: [pod("x", "/b", "i:2")] }),
  ]);
  assert.deepEqual({ pods, refused }, { pods: ["x@/b", "y@/a"], refused: {} });
});

test("what a missing file had goes to whoever has it now, without a word", () => {
  const { pods, refused } = settled([
    version("/a", { current: [pod("x", "/a"), pod("y", "/a")], isMissing: true }),
    version("/b", { next: [pod("x", "/b")] }),
  ]);
  assert.deepEqual({ pods, refused }, { pods: ["x@/b", "y@/a"], refused: {} });
});

test("one uid for two pods is refused too", () => {
  const [first, second] = [pod("x", "/a"), pod("y", "/b")];
  const { refused } = settled([
    version("/a", { next: [first] }),
    version("/b", { next: [{ ...second, uid: first.uid }] }),
  ]);
  assert.match(refused["/b"] ?? "", /^metadata\.uid: Duplicate value: pod default\/x of \/a has it too/);
});

test("too many pods: those that are wanted stay, the new ones are refused", () => {
  const many = Array.from({ length: 10 }, (_, n) => pod(`many-${n}`, "/a"));
  const { pods, refused } = settled([version("/a", { next: many }), version("/z", { current: [pod("z", "/z")] })], 5);
  assert.deepEqual(pods, ["z@/z"]);
  assert.match(refused["/a"] ?? "", /^Too many: all files together may have at most 5 pods/);
});

test("two incarnations of one name that the store was given are made one", () => {
  assert.deepEqual(settled([version("/a", { current: [pod("x", "/a"), pod("x", "/a", "i:2")] })]).pods, ["x@/a"]);
});
