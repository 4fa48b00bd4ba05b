// The conversation stays at its newest line while somebody reads there, links open beside the page, and what
// allows something waits until it could be read.
(() => {
  const NEAR_PX = 120;
  let pinned = true;

  const atEnd = () =>
    document.documentElement.scrollHeight - window.scrollY - window.innerHeight < NEAR_PX;
  const toEnd = () => window.scrollTo({ top: document.documentElement.scrollHeight });

  window.addEventListener("scroll", () => (pinned = atEnd()), { passive: true });

  const begin = () => {
    const conversation = document.querySelector(".conversation");
    if (!conversation) return window.setTimeout(begin, 50);
    toEnd();
    new ResizeObserver(() => pinned && toEnd()).observe(conversation);
  };
  begin();

  const READING_MS = 700;
  const waiting = new WeakSet();
  const wait = () => {
    for (const button of document.querySelectorAll("button[data-allows]:disabled")) {
      if (waiting.has(button)) continue;
      waiting.add(button);
      window.setTimeout(() => (button.disabled = false), READING_MS);
    }
  };
  new MutationObserver(wait).observe(document.body, { childList: true, subtree: true });
  wait();

  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a.markdown-link");
    if (!link) return;
    event.preventDefault();
    window.open(link.href, "_blank", "noopener,noreferrer");
  });
})();
