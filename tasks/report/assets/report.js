// Opens the card of an id, and filters cards by words and a reason. Texts are inserted as text, never as markup.

const cards = [...document.querySelectorAll(".card")];
const query = document.getElementById("query");
const found = document.getElementById("found");
const reasons = [...document.querySelectorAll("[data-reason]")];

// Where words are looked for: in the id, tags and captions of a video, and in all of a job.
const textOf = (part) => (part.closest("#videos") ? [...part.querySelectorAll("summary b, i, q")] : [part]).map((each) => each.textContent).join("\n").toLowerCase();

// Shows the cards that have all words and the pressed reason, and marks the chunks with all words; returns these cards.
function filter() {
  const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  const reason = reasons.find((button) => button.ariaPressed === "true")?.dataset.reason;
  const hasWords = (text) => words.every((word) => text.includes(word));
  for (const card of cards) {
    card.hidden = !hasWords(textOf(card)) || (reason !== undefined && !card.dataset.reasons.split("|").includes(reason));
    for (const chunk of card.querySelectorAll(".chunks li")) chunk.classList.toggle("hit", words.length > 0 && hasWords(textOf(chunk)));
  }
  const shown = cards.filter((card) => !card.hidden);
  found.textContent = words.length || reason ? `${shown.length} of ${cards.length}.` : "";
  return shown;
}

// Filters by a query and a reason, whose second press is for none.
function show(text, pressed) {
  query.value = text;
  for (const button of reasons) button.ariaPressed = button === pressed && button.ariaPressed !== "true";
  filter();
}

// Opens the card that is, or contains, an element; if there is none on this page, says how to get it.
function openCard(target) {
  if (!target) {
    found.textContent = query.dataset.missing;
    return;
  }
  const card = target.closest(".card");
  if (card.hidden) show("");
  else filter(); // The count instead of an earlier message.
  card.open = true;
  target.scrollIntoView({ block: target === card ? "start" : "center" });
}

function openHash() {
  if (location.hash.startsWith("#job-")) openCard(document.querySelector(":target"));
}

document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const id = query.value.trim();
  const target = document.getElementById(`job-${id}`);
  const shown = filter();
  if (!target && shown.length === 1) shown[0].open = true;
  else if (id) openCard(target);
});
query.addEventListener("input", filter);
for (const button of reasons) button.addEventListener("click", () => show(query.value, button));
for (const button of document.querySelectorAll("[data-query]")) {
  button.addEventListener("click", () => {
    show(button.dataset.query);
    document.getElementById("cards").scrollIntoView();
  });
}
// Frames are on the page once; a card that is opened gets its own copy of those that it shares.
document.getElementById("cards").addEventListener("toggle", ({ target: card }) => {
  for (const note of card.querySelectorAll("[data-same]")) {
    note.replaceWith(document.querySelector(`[data-frames="${note.dataset.same}"]`).cloneNode(true));
  }
}, true); // toggle does not bubble
addEventListener("hashchange", openHash);
addEventListener("load", openHash);
