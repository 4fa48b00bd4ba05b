// A page whose server was started anew cannot come back by itself: it says that a new link is needed.
(() => {
  const LOOK_MS = 3000;
  const popup = document.getElementById("popup");
  let timer = 0;

  const look = async () => {
    const answer = await fetch("/static/base.css", { cache: "no-store" }).catch(() => null);
    if (answer?.status !== 401 || popup.ariaHidden === "true") return;
    const [what, how] = popup.querySelectorAll("span");
    what.textContent = "The server was started anew.";
    how.textContent = "Open the link that its terminal printed.";
    window.clearInterval(timer);
  };

  new MutationObserver(() => {
    window.clearInterval(timer);
    if (popup.ariaHidden === "false") timer = window.setInterval(look, LOOK_MS);
  }).observe(popup, { attributes: true, attributeFilter: ["aria-hidden"] });
})();
