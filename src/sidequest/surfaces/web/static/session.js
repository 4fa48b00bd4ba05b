// The conversation stays at its newest line while somebody reads there, and links open beside the page.
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

  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a.markdown-link");
    if (!link) return;
    event.preventDefault();
    window.open(link.href, "_blank", "noopener,noreferrer");
  });
})();
