use super::*;

#[test]
fn buckets_hold_every_element_once() {
    let data = [
        Data::F32(vec![0.0; 3]),
        Data::Bool(vec![]),
        Data::F64(vec![0.0; BUCKET / 8 + 5]),
        Data::I8(vec![0; 7]),
        Data::F16(vec![]),
        Data::F64(vec![0.0; 2 * BUCKET / 8]),
    ];
    let mut next = vec![0; data.len()];
    for bucket in buckets(&data) {
        let bytes: usize = bucket.iter().map(|piece| piece.range.len() * data[piece.leaf].dtype().size()).sum();
        assert!(bytes > 0 && bytes <= BUCKET, "{bytes}");
        for piece in bucket {
            assert_eq!(piece.range.start, next[piece.leaf]);
            next[piece.leaf] = piece.range.end;
        }
    }
    assert_eq!(next, data.iter().map(Data::len).collect::<Vec<_>>());
    assert_eq!(buckets(&[]).len(), 0);
    assert_eq!(buckets(&data[1..2]).len(), 0);
}

#[test]
fn parts_cover_a_piece() {
    for (nodes, len) in [(1, 5), (3, 7), (5, 2), (4, 0)] {
        let piece = Piece { leaf: 0, range: 10..10 + len };
        let round = Round { rank: 0, nodes, divisor: 1 };
        let parts: Vec<usize> = (0..nodes).flat_map(|rank| round.part(&piece, rank)).collect();
        assert_eq!(parts, (10..10 + len).collect::<Vec<_>>());
    }
}

#[test]
fn differences_name_the_leaf() {
    let of = |mine: &str, theirs: &str| difference(0, ("sum", mine), 2, ("sum", theirs));
    assert_eq!(of("a\tf32[2]", "a\tf32[2]"), None);
    assert_eq!(
        of("a\tf32[2]\nb.w\tf32[3]", "a\tf32[2]\nb.w\tbf16[3]").as_deref(),
        Some("the tensor at `b.w` is f32[3] on this node, 0, and bf16[3] on node 2")
    );
    assert_eq!(
        of("\tf32[3]", "\tf32[4]").as_deref(),
        Some("the tensor is f32[3] on this node, 0, and f32[4] on node 2")
    );
    assert_eq!(of("a\tf32[]", "b\tf32[]").as_deref(), Some("the leaf `a` on this node, 0, is `b` on node 2"));
    assert_eq!(
        of("a\tf32[]", "a\tf32[]\nb\tf32[]").as_deref(),
        Some("the tree has 1 leaf on this node, 0, and 2 leaves on node 2; the first that differs is `b`")
    );
    assert_eq!(
        of("", "b\tf32[]").as_deref(),
        Some("the tree has 0 leaves on this node, 0, and 1 leaf on node 2; the first that differs is `b`")
    );
    assert_eq!(
        difference(1, ("broadcast", ""), 0, ("all_reduce_sum", "")).as_deref(),
        Some(
            "node 0 is in all_reduce_sum, and this node, 1, in broadcast: all have to call the same functions in the same order"
        )
    );
}
