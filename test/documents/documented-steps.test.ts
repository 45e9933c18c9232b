import assert from "node:assert/strict";
import { test } from "node:test";
import { missingLine, stepsOf } from "./documented-steps.ts";

const TEXT = `# Title

\`\`\`sh
edgectl status   # the node
edgectl images
\`\`\`

<!-- file: /etc/a.yaml -->
\`\`\`yaml
a: 1
\`\`\`

\`\`\`console
$ edgectl logs hello
Hello
world
$ edgectl events
\`\`\`

<!-- not run: it writes an SD card -->
\`\`\`sh
dd if=image of=/dev/sdx
\`\`\`

- \`edgectl version --client\`: without an agent
- \`--client\`: a flag
`;

test("commands, files, shown output and marks of a document, in its order", () => {
  const shared = { kind: "command", expected: [], notRun: undefined };
  assert.deepEqual(stepsOf(TEXT), [
    { ...shared, line: 4, text: "edgectl status   # the node" },
    { ...shared, line: 5, text: "edgectl images" },
    { kind: "file", line: 9, path: "/etc/a.yaml", text: "a: 1\n", isAdded: false },
    { ...shared, line: 14, text: "edgectl logs hello", expected: ["Hello", "world"] },
    { ...shared, line: 17, text: "edgectl events" },
    { ...shared, line: 22, text: "dd if=image of=/dev/sdx", notRun: "it writes an SD card" },
    { ...shared, line: 25, text: "edgectl version --client" },
  ]);
});

test("a block of a list has the mark before it", () => {
  const [step] = stepsOf("1. Write it:\n\n   <!-- not run: it writes a card -->\n   ```sh\n   dd if=image\n   ```\n");
  assert.equal(step?.kind === "command" && step.notRun, "it writes a card");
});

const SHOWN = [
  "vm is healthy: 1 pod",
  "Agent  0.1.0, up 0s, anon 23.4 of 64 MiB",
  "...",
  "POD    READY  AGE",
  "hello  1/1    0s",
];
const PRINTED = SHOWN.join("\n").replace("...", "Memory\nDisk");

for (const [what, output, missing] of [
  ["the same", PRINTED, undefined],
  [
    "other figures, units, widths and line breaks",
    "vm is healthy: 3 pod\nAgent 0.2.1, up 1m2s, anon\n 900 of 1 KiB\nMemory\nPOD READY AGE\nhello 2/2 12m\n",
    undefined,
  ],
  ["another heading", PRINTED.replace("READY", "STATE"), SHOWN[3]],
  ["another field", PRINTED.replace("anon", "RSS"), SHOWN[1]],
  ["a line more", PRINTED.replace("pod\n", "pod\nWarning\n"), SHOWN[1]],
  ["a line more at the end", `${PRINTED}\nweb`, "the end of the output"],
  ["another order", [...SHOWN].reverse().join("\n"), SHOWN[0]],
  ["nothing", "", SHOWN[0]],
] as const) {
  test(`output that has ${what} ${missing === undefined ? "is" : "is not"} what the document shows`, () => {
    assert.equal(missingLine(SHOWN, output), missing);
  });
}

test("what is shown may be a part of the output of a command that goes on", () => {
  assert.equal(missingLine(SHOWN, `building\n${PRINTED}\nmore`, true), undefined);
});
