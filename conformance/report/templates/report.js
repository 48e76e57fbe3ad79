"use strict";
// The page is complete without this script: it only filters, opens what a link points to, and copies commands.
(() => {
  const filter = document.getElementById("filter");
  const requirements = [...document.querySelectorAll("details.requirement")];
  const chips = [...document.querySelectorAll("a.chip")];
  const areas = [...document.querySelectorAll(".matrix tbody tr")];
  const searchable = new Map(requirements.map((one) => [one, one.textContent.toLowerCase()]));

  const matchesVerdict = (one, verdict) =>
    verdict === "" || one.dataset.verdict === verdict || (verdict === "trouble" && one.dataset.verdict !== "pass");

  const applyFilter = () => {
    const { verdict, area, text } = filter.elements;
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const visible = new Set();
    for (const one of requirements) {
      const matches = matchesVerdict(one, verdict.value)
        && (area.value === "" || one.dataset.area === area.value)
        && words.every((word) => searchable.get(one).includes(word));
      one.hidden = !matches;
      if (matches) visible.add(one.id);
    }
    for (const chip of chips) chip.hidden = !visible.has(chip.dataset.requirement);
    for (const row of areas) row.hidden = !row.querySelector("a.chip:not([hidden])");
    document.getElementById("matches").textContent = `${visible.size} of ${requirements.length} requirements`;
  };

  const openTarget = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target || !target.matches("details.requirement")) return;
    target.hidden = false;
    target.open = true;
    target.scrollIntoView();
    target.querySelector("summary").focus({ preventScroll: true });
  };

  const enableCopying = (button) => {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      button.textContent = "copied";
    });
  };

  if (filter) {
    filter.hidden = false;
    filter.addEventListener("input", applyFilter);
    filter.addEventListener("submit", (event) => event.preventDefault());
    applyFilter();
  }
  for (const chip of chips) chip.addEventListener("click", () => setTimeout(openTarget));
  addEventListener("hashchange", openTarget);
  openTarget();
  if (navigator.clipboard) document.querySelectorAll("button.copy").forEach(enableCopying);
})();
