// What eslint looks for in the page's scripts, and in their tests. It is run where the Makefile stands.
import { createRequire } from "node:module";

const { configs } = createRequire(`${process.cwd()}/.venv/page/package.json`)("@eslint/js");

const BROWSER = `window document location history navigator performance requestAnimationFrame cancelAnimationFrame
  setTimeout clearTimeout setInterval clearInterval matchMedia getComputedStyle devicePixelRatio innerWidth innerHeight
  addEventListener ResizeObserver Event FormData URL URLSearchParams Blob Path2D structuredClone`;
const NODE = "process console URL URLSearchParams performance structuredClone";
const MARKUP = ["innerHTML", "outerHTML", "insertAdjacentHTML", "srcdoc", "write", "writeln"];

const known = (names) => ({ globals: Object.fromEntries(names.split(/\s+/).map((name) => [name, "readonly"])) });

export default [
  configs.recommended,
  {
    rules: {
      "eqeqeq": ["error", "always", { null: "ignore" }],
      "max-len": ["error", 120],
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-new-func": "error",
      "no-var": "error",
      "prefer-const": "error",
    },
  },
  {
    files: ["gpipe_sim/viewer/*.js"],
    languageOptions: known(BROWSER),
    rules: { "no-restricted-properties": ["error", ...MARKUP.map((property) => ({ property }))] }, // text stays text
  },
  { files: ["tests/page/*.js", "tests/page/*.mjs"], languageOptions: known(NODE) },
];
