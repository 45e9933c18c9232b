import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { KubeletAnswers, type KubeletAnswersComponents } from "./kubelet-answers.ts";

const { signal } = new AbortController();

/** A folder of logs beside a secret. */
function board(t: TestContext): { readonly get: (path: string) => Promise<string>; readonly folder: TempFolder } {
  const folder = new TempFolder();
  t.after(() => folder[Symbol.dispose]());
  mkdirSync(folder.at("log/apt"), { recursive: true });
  writeFileSync(folder.at("secret"), "secret");
  writeFileSync(folder.at("log/syslog"), "one\ntwo\n");
  writeFileSync(folder.at("log/apt/a b.log"), "x".repeat(200_000));
  const components = { clock: new VirtualClock(), logFolder: folder.at("log") };
  const answers = new KubeletAnswers(components as unknown as KubeletAnswersComponents);
  const get = async (path: string): Promise<string> => {
    const { status, body } = await answers.get(path, signal);
    let text = "";
    for await (const piece of body) text += Buffer.from(piece).toString();
    return `${status} ${text}`;
  };
  return { get, folder };
}

test("files and folders of the machine's logs are answered", async (t) => {
  const { get } = board(t);
  assert.equal(await get("/logs/"), "200 apt/\nsyslog\n");
  assert.equal(await get("/logs"), "200 apt/\nsyslog\n");
  assert.equal(await get("/logs/syslog"), "200 one\ntwo\n");
  assert.equal(await get("/logs/apt/"), "200 a%20b.log\n");
  assert.equal((await get("/logs/apt/a%20b.log")).length, "200 ".length + 200_000);
  for (const absent of ["/logs/none", "/logs/syslog/x", `/logs/${"a/".repeat(17)}`, "/logs/%zz"])
    assert.equal(await get(absent), "404 404 page not found\n", absent);
});

test("nothing outside of the folder is answered, by names or by links in any place", async (t) => {
  const { get, folder } = board(t);
  symlinkSync(folder.at("secret"), folder.at("log/link"));
  symlinkSync(folder.path, folder.at("log/up"));
  execFileSync("mkfifo", [folder.at("log/pipe")]);
  for (const path of [
    "link",
    "up/secret",
    "up",
    "../secret",
    "%2e%2e/secret",
    "..%2fsecret",
    "%2e%2e%2fsecret",
    "pipe",
  ])
    assert.equal(await get(`/logs/${path}`), "404 404 page not found\n", path);
  assert.match(await get("/logs/"), /^200 apt\/\nlink\npipe\nsyslog\nup\n$/);
});
