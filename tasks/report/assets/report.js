// Opens the card of an id and filters cards. Texts are inserted as text, never as markup.

const cards = [...document.querySelectorAll(".card")].map((card) => ({ card, texts: readTexts(card) }));
const query = document.getElementById("query");
const found = document.getElementById("found");
const reasons = [...document.querySelectorAll("[data-reason]")];

// What words are looked for in, the best first: tags and captions of a video with their scores, all texts of other cards.
function readTexts(card) {
  const parts = [...card.querySelectorAll("i, q")].filter((part) => !part.closest(".bars, .strip"));
  if (!parts.length || card.dataset.reasons) return [{ text: card.textContent.toLowerCase(), score: 0, moment: "" }];
  const tags = parts.map((part) => ({
    text: part.textContent.toLowerCase(),
    score: Number(part.textContent.split(" ").pop()) || 0,
    moment: [part.textContent, part.closest("li")?.firstChild.textContent.trim()].filter(Boolean).join(" · "),
  }));
  return [...tags, { text: card.id.slice(4).toLowerCase(), score: -1, moment: "" }].sort((one, other) => other.score - one.score);
}

// Shows the cards that have a text with all words of the query, the best score first, among those of the pressed reason.
function filter() {
  const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  const reason = reasons.find((each) => each.ariaPressed === "true")?.dataset.reason;
  for (const each of cards) {
    each.best = each.texts.find(({ text }) => words.every((word) => text.includes(word)));
    each.card.hidden = !each.best || (reason && !each.card.dataset.reasons.split("|").includes(reason));
    const moment = each.card.querySelector(".moment");
    if (moment) moment.textContent = words.length && each.best ? each.best.moment : "";
  }
  const shown = cards.filter(({ card }) => !card.hidden);
  if (words.length) shown.sort((one, other) => other.best.score - one.best.score);
  document.getElementById("cards").append(...shown.map(({ card }) => card));
  found.textContent = words.length || reason ? `${shown.length} of ${cards.length}.` : "";
}

// Filters by a query and one of the reasons, or none.
function show(text, reason) {
  query.value = text;
  for (const each of reasons) each.ariaPressed = String(each === reason);
  filter();
}

// Opens the card of a job, or of a chunk of one; says how to get it if it is not on this page.
function openCard(id) {
  const target = document.getElementById(`job-${id}`);
  if (!target) {
    const command = document.createElement("code");
    command.textContent = `${query.dataset.command} '${id.replaceAll("'", "'\\''")}'`;
    found.replaceChildren("No job of this report has this ID. To create a report with it, if the run has it: ", command);
    return;
  }
  const card = target.closest(".card");
  if (card.hidden) show("");
  card.open = true;
  card.querySelector("li.hit")?.classList.remove("hit");
  target.classList.add("hit");
  target.scrollIntoView({ block: target === card ? "start" : "center" });
}

function openHash() {
  try {
    const id = decodeURIComponent(location.hash.slice(1));
    if (id.startsWith("job-")) openCard(id.slice(4));
  } catch {
    // An address that is not encoded names no card.
  }
}

document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const id = query.value.trim();
  const shown = cards.filter(({ card }) => !card.hidden);
  if (!document.getElementById(`job-${id}`) && shown.length === 1) shown[0].card.open = true;
  else if (id) openCard(id);
});
query.addEventListener("input", filter);
for (const each of reasons) {
  each.addEventListener("click", () => show(query.value, each.ariaPressed === "true" ? null : each));
}
for (const each of document.querySelectorAll("[data-query]")) {
  each.addEventListener("click", () => {
    show(each.dataset.query);
    document.getElementById("cards").scrollIntoView();
  });
}
// Frames are on the page once; each card that is opened has its own copy of those that it shares.
for (const { card } of cards) {
  card.addEventListener("toggle", () => {
    for (const note of card.querySelectorAll("[data-same]")) {
      const copy = document.getElementById(note.dataset.same).cloneNode(true);
      copy.removeAttribute("id");
      note.replaceWith(copy);
    }
  });
}
addEventListener("hashchange", openHash);
openHash();
