import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { drawPicture } from "./draw-picture.ts";

test("docs/picture.svg is what docs/picture.txt says", () => {
  assert.equal(readFileSync("docs/picture.svg", "utf8"), drawPicture(readFileSync("docs/picture.txt", "utf8")));
});

test("an arrow ends at the edges of its boxes, and text is escaped", () => {
  const drawn = drawPicture("size 300 50\nbox a 0 0 100 50 ours A & <B>\nbox b 200 0 100 50 plain B\narrow a b\n");
  assert.match(drawn, /<line x1="100" y1="25" x2="200" y2="25"/);
  assert.match(drawn, /A &#38; &#60;B&#62;/);
});

test("a line that cannot be read is named", () => {
  assert.throws(() => drawPicture("size 1 1\ncircle 1"), /picture\.txt:2: "circle" is unknown/);
  assert.throws(() => drawPicture("arrow a b"), /:1: no box before this line has the name "a"/);
  assert.throws(() => drawPicture("box a 1 2 x 4 ours A"), /4 numbers are missing/);
  assert.throws(() => drawPicture("box a 1 2 3 4 blue A"), /write plain or ours/);
});
