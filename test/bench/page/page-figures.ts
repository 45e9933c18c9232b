/** How long the pages take in a real browser, from the request to what a user reads. */
import { AgentNode } from "../../support/agent/agent-process.ts";
import { Browser } from "../../support/page/browser.ts";
import { FLEET_TOKEN, FleetPages } from "../../support/page/fleet-pages.ts";
import { PAGE_CONFIG, pagePort } from "../../support/page/paged-node.ts";

const BOARDS = 10_000;
const RUNS = 3;

/** The first contentful paints of a board's page; the agent has loaded nothing of it before the first. */
export async function boardPageMs(): Promise<readonly number[]> {
  await using node = new AgentNode({ config: PAGE_CONFIG });
  await node.start();
  await using browser = await Browser.start();
  const { page } = browser;
  await browser.show("desk", "light");
  const took: number[] = [];
  for (let run = 0; run < RUNS; run += 1) {
    await page.goto(`http://127.0.0.1:${pagePort(node)}/page/`);
    await page.getByText("There are no pods.").waitFor();
    const paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime";
    took.push(await page.evaluate<number>(paint));
  }
  return took;
}

/** From the token to the list of 10,000 boards. */
export async function fleetPageMs(): Promise<readonly number[]> {
  await using pages = await FleetPages.start(BOARDS);
  await using browser = await Browser.start();
  const { page } = browser;
  await browser.show("desk", "light");
  const took: number[] = [];
  for (let run = 0; run < RUNS; run += 1) {
    await page.goto(pages.url);
    await page.getByLabel("Token").fill(FLEET_TOKEN);
    const begun = performance.now();
    await page.keyboard.press("Enter");
    await page.getByText(`${BOARDS} boards`, { exact: true }).waitFor();
    took.push(performance.now() - begun);
  }
  return took;
}
