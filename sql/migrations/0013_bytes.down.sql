-- Takes the numbers away; labels stay.

ALTER TABLE reelabel.result DROP COLUMN bytes_fetched;
