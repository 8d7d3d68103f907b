// Every script names only what another exports. The page, where they are one, would not tell.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { test } from "node:test";

const built = new URL("../../build/page/", import.meta.url);

for (const name of readdirSync(built).filter((each) => each.endsWith(".js"))) {
  test(`${name} finds what it imports`, async () => {
    try {
      await import(new URL(name, built));
    } catch (error) {
      assert.equal(error.name, "ReferenceError", error.message); // a document is not here; imports are linked before
    }
  });
}
