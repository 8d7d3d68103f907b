// What visit.py asks of JupyterLab's page. It is loaded before the page's own scripts.
const lesson = () => jupyterapp.shell.currentWidget;
const kernel = () => lesson().context.sessionContext;
const panel = () => document.querySelector(".jp-WindowedPanel-outer");
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const right = (element) => element.getBoundingClientRect().right;

const describe = (image) => ({
  source: image.src.startsWith("data:") ? image.src.match(/^data:([^;,]*)/)[1] : new URL(image.src).pathname,
  alt: image.alt,
  loaded: image.naturalWidth > 0,
  bare: image.closest(".jp-RenderedImage") !== null, // an output that is an image, not HTML with one in it
  top: image.closest("details:not([open])") ? null : image.getBoundingClientRect().top - panel().getBoundingClientRect().top,
});

// A word that begins in one line of the page and ends in another.
const broken = (place) => {
  const texts = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode())
    for (const word of text.data.matchAll(/\S+/g)) {
      const range = document.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((line) => Math.round(line.top))).size > 1) return word[0];
    }
  return null;
};

const sticksOut = (place) =>
  place.scrollWidth > place.clientWidth + 1 || all("img", place).some((image) => right(image) > right(place) + 1);

window.look = {
  isOpen: () => Boolean(window.jupyterapp?.shell.currentWidget?.context?.path),

  prepare: async () => {
    await Promise.all([lesson().context.ready, lesson().revealed, kernel().ready]);
    await Promise.all(lesson().content.widgets.map((cell) => cell.ready));
    jupyterapp.shell.collapseLeft();
  },

  // Resolves when the theme's style sheets are there.
  setTheme: (theme) => jupyterapp.commands.execute("apputils:change-theme", { theme }),

  // JupyterLab follows the window's size after a while. Then only bars are left between the notebook and the edges.
  isLaidOut: () => {
    const { left, right, bottom } = panel().getBoundingClientRect();
    const gaps = [left, innerWidth - right, innerHeight - bottom];
    return gaps.every((gap) => Math.abs(gap) < 60) && all(".jp-Notebook img").every((image) => image.complete);
  },

  // How many pixels of the notebook are out of the window.
  below: () => panel().scrollHeight - panel().clientHeight,

  cells: () =>
    all(".jp-Notebook .jp-Cell").map((cell) => {
      const outputs = all(".jp-OutputArea-output", cell);
      const places = [...outputs, ...all(".jp-MarkdownOutput", cell)];
      return {
        images: places.flatMap((place) => all("img", place)).map(describe),
        wide: places.some(sticksOut),
        markup: outputs.some((output) => output.innerText.includes("<svg")),
        bare_folds: all("details", cell).filter((fold) => getComputedStyle(fold).borderTopWidth === "0px").length,
        broken: outputs.flatMap((output) => all("pre", output)).map(broken).find(Boolean) ?? null,
      };
    }),

  // Clearing takes the stored numbers away: a cell that has one afterwards was run.
  run: () => {
    window.ran = false;
    jupyterapp.commands
      .execute("notebook:clear-all-cell-outputs")
      .then(() => jupyterapp.commands.execute("notebook:restart-run-all"))
      .finally(() => (window.ran = true));
  },
  hasRun: () => window.ran && kernel().session?.kernel?.status === "idle",
  notebook: () => lesson().content.model.toJSON(),
  endKernel: () => kernel().shutdown(),
};
