//! dev tool
fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("forms") => {
            for (i, row) in cuda_ptx::table::rows().iter().enumerate() {
                let forms = row.forms();
                eprintln!("{i}\t{}\t{}", forms.len(), row.text());
                for form in forms {
                    println!("{i}\t{}", form.text);
                }
            }
        }
        _ => {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut std::io::stdin(), &mut text).unwrap();
            match cuda_ptx::parse(&text) {
                Err(e) => println!("parse {} {e}", e.line),
                Ok(m) => {
                    for f in &m.functions {
                        if let Some(body) = &f.body {
                            let c = cuda_ptx::Checker::new(&m, body);
                            for ins in &body.instructions {
                                if let Err(e) = c.check(ins) {
                                    println!("line {} {}: {e}", ins.line, ins.name());
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
