-- Takes the fitted margins and the first answers away; `reelabel route fit` fits them anew, labels stay.

DROP TABLE reelabel.route;
ALTER TABLE reelabel.result
    DROP COLUMN routed_by,
    DROP COLUMN first_label,
    DROP COLUMN first_margin,
    DROP COLUMN ask_again_below;
